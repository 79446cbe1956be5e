"""The file of a cluster: its meaning, and one line for each mistake."""

import pytest

from qbench.plan.cluster import read_cluster
from quant.errors import InputError

TWO_HOSTS = """
devices:
  gpu: {operations: 4e14, bandwidth: 2TB, memory: 80GB}
links:
  inside: {latency_us: 8, bandwidth: 200GB}
  net: {latency_us: 30, bandwidth: 3e9}
hosts:
  - {count: 2, devices: {gpu: 2}, link: inside}
between: net
"""


def read(tmp_path, text):
    (file := tmp_path / "cluster.yaml").write_text(text)
    return read_cluster(file)


def test_places_figures_and_links(tmp_path):
    cluster = read(tmp_path, TWO_HOSTS)
    assert [place.host for place in cluster.places] == [0, 0, 1, 1]
    device = cluster.device(cluster.places[0])
    assert (device.memory_bytes, device.rates.operations, device.rates.bandwidth) == (80 * 10**9, 4e14, 2e12)
    first, second, third, _ = cluster.places
    assert cluster.link_name(first, second) == "inside" and cluster.link_name(second, third) == "net"
    assert cluster.worst_link((first, second)) == "inside" and cluster.worst_link(cluster.places) == "net"
    assert cluster.links["net"].rates.latency_s == pytest.approx(30e-6) and cluster.worst_link((first,)) is None


def test_rates_may_be_measured_or_kept(tmp_path):
    text = TWO_HOSTS.replace("{latency_us: 30, bandwidth: 3e9}", "{rates: runs/rates.jsonl}")
    text = text.replace("{operations: 4e14, bandwidth: 2TB, memory: 80GB}", "{memory: 80GB, rates: measured}")
    cluster = read(tmp_path, text)
    assert cluster.origins == {"measured", str(tmp_path / "runs/rates.jsonl")}
    assert cluster.devices["gpu"].rates is None


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("memory: 80GB", "memory: much", "memory is not a number"),
        (", memory: 80GB", "", "lacks memory"),
        ("bandwidth: 2TB, ", "", "lacks bandwidth"),
        ("operations: 4e14", "operations: -1", "not a number above 0"),
        ("operations: 4e14", "operations: .nan", "not a number above 0"),
        ("operations: 4e14", "flops: 4e14", "unknown keys flops"),
        ("operations: 4e14", "operations: 4e14, rates: measured", "both rates and operations"),
        ("bandwidth: 3e9", "rates: measured", "both rates and latency_us"),
        ("{gpu: 2}", "{tpu: 2}", "unknown keys tpu"),
        ("{gpu: 2}", "{gpu: 0}", "expected a whole number"),
        ("{gpu: 2}", "{gpu: 100}", "more than 128 devices"),
        ("link: inside", "link: outside", "known links: inside, net"),
        (", link: inside", "", "no link between them"),
        ("between: net", "", "several hosts, but no link"),
        ("between: net", "between: air", "known links: inside, net"),
        ("hosts:\n  - {count: 2, devices: {gpu: 2}, link: inside}", "hosts: []", "list of one or more"),
        ("devices:\n  gpu:", "devices: [gpu]\nx:", "unknown keys x"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, old, new, word):
    assert old in TWO_HOSTS
    with pytest.raises(InputError, match=word) as caught:
        read(tmp_path, TWO_HOSTS.replace(old, new))
    assert "\n" not in str(caught.value)
