"""The search over layouts, against costs that are computed by hand."""

from dataclasses import replace
from math import comb

import pytest

from qbench.measure.records.kept_ranks import DeviceRates, LinkRates
from qbench.plan.cluster import Cluster, ClusterCase, plan_cluster
from qbench.plan.cluster.hosts import Device, Link, Place
from qbench.run.rank_layout import ALL_TO_ALL, GATHER, RankLayout
from qbench.sources import open_source
from quant.errors import InputError
from quant.models import ModelConfig

GIBI = 1 << 30
HIDDEN, FFN, NUM_LAYERS, VOCABULARY = 256, 512, 2, 512  # of rand:tiny


def cluster(num_devices: int, *, latency_s: float, bandwidth: float = 1e12, memory: int = GIBI) -> Cluster:
    """One host whose devices need 1 s for 1e9 bytes, and no time for operations."""
    device = Device(memory, rates=DeviceRates(operations=1e30, bandwidth=1e9))
    link = Link(rates=LinkRates(latency_s=latency_s, bandwidth=bandwidth))
    return Cluster({"core": device}, {"wire": link}, (Place(0, "core", "wire"),) * num_devices, None)


def rows(goal: str, of: Cluster, **case):
    found = plan_cluster("rand:tiny", ClusterCase(goal, context=64, **case), of)
    return found, {str(row.layout): row for row in found.layouts}


def test_a_step_is_its_bytes_and_its_messages():
    _, found = rows("latency", cluster(2, latency_s=1e-3))
    alone, halves, stages = (found[str(each)] for each in (RankLayout(), RankLayout(tp=2), RankLayout(pp=2)))
    assert alone.decode.exchange_s == 0
    assert halves.decode.compute_s == pytest.approx(alone.decode.compute_s / 2)
    sent = 4 * (NUM_LAYERS * 2 * HIDDEN + VOCABULARY / 2)
    assert halves.decode.exchange_s == pytest.approx((2 * NUM_LAYERS + 1) * 1e-3 + sent / 1e12)
    assert stages.decode.compute_s == pytest.approx(alone.decode.compute_s)
    assert stages.decode.exchange_s == pytest.approx(2 * (1e-3 + 4 * HIDDEN / 1e12))
    assert (halves.bytes_per_token, halves.messages_per_step) == (2 * sent, 2 * (2 * NUM_LAYERS + 1))


def test_parts_that_python_calls_take_longer():
    plain, slow = cluster(2, latency_s=1e-3), cluster(2, latency_s=1e-3)
    rates = DeviceRates(1e30, 1e9, called_layer_s=0.5, shared_layer_s=2.0)
    slow.devices["core"] = replace(plain.devices["core"], rates=rates)
    slow.links["wire"] = Link(rates=LinkRates(latency_s=1e-3, bandwidth=1e12, call_s=0.25))
    (_, before), (_, after) = rows("latency", plain), rows("latency", slow)
    for layout, layer_s, messages in (
        (RankLayout(tp=2), 0, 0),
        (RankLayout(tp=2, cut=GATHER), 0.5, 4 * NUM_LAYERS + 1),
        (RankLayout(sp=2), 2.0, NUM_LAYERS),
        (RankLayout(pp=2), 0, 2),
    ):
        one, other = before[str(layout)].decode, after[str(layout)].decode
        assert other.compute_s - one.compute_s == pytest.approx(layer_s * NUM_LAYERS)
        assert other.exchange_s - one.exchange_s == pytest.approx(0.25 * messages)


def test_all_to_all_divides_attention_and_sends_three_messages_per_layer():
    source = open_source("rand:tiny-mla-moe")
    config = ModelConfig.of(source)
    moe, routed = config.moe, [config.layer_kind(layer) for layer in range(config.num_layers)].count("moe")
    case, of = ClusterCase("latency", context=64, batch=6), cluster(2, latency_s=1e-3)
    found = {str(row.layout): row for row in plan_cluster("rand:tiny-mla-moe", case, of, source).layouts}
    row = found[str(RankLayout(ep=2, dispatch=ALL_TO_ALL))]
    missed = comb(moe.num_experts // 2, moe.num_experts_per_token) / comb(moe.num_experts, moe.num_experts_per_token)
    values = (
        routed * (1 + 3 * (1 - missed) * (2 * config.hidden_size + 2 * moe.num_experts_per_token))
        + 3 * config.hidden_size
    )
    assert row.decode.exchange_s == pytest.approx((3 * routed + 1) * 1e-3 + 4 * values / 1e12)
    assert row.decode.compute_s < found[str(RankLayout(ep=2))].decode.compute_s


def test_the_link_decides_between_lanes_and_one_device():
    for latency_s, best in ((1e-9, "tp 2, pp 1, cut sum"), (1.0, "tp 1, pp 1")):
        found, _ = rows("latency", cluster(2, latency_s=latency_s))
        assert str(found.layouts[0].layout) == best


def test_copies_win_throughput():
    found, by_layout = rows("throughput", cluster(4, latency_s=1e-4), batch=2)
    best = found.layouts[0]
    assert (str(best.layout), best.copies) == ("tp 1, pp 1", 4)
    assert best.tok_s == pytest.approx(4 * 2 / best.decode.total_s)
    assert by_layout[str(RankLayout(tp=2, cut=GATHER))].copies == 2


def test_a_stage_boundary_between_hosts_takes_their_link():
    device, links = Device(GIBI, rates=DeviceRates(operations=1e30, bandwidth=1e9)), {}
    for name, latency_s in (("inside", 1e-6), ("net", 1e-2)):
        links[name] = Link(rates=LinkRates(latency_s=latency_s, bandwidth=1e12))
    places = tuple(Place(host, "core", "inside") for host in (0, 0, 1, 1))
    _, found = rows("latency", Cluster({"core": device}, links, places, "net"))
    across, within = found[str(RankLayout(tp=2, pp=2))], found[str(RankLayout(tp=4))]
    assert across.decode.exchange_s == pytest.approx(2e-2, rel=0.01) and across.links == ["inside", "net"]
    assert within.decode.exchange_s == pytest.approx(3 * (2 * NUM_LAYERS + 1) * 1e-2, rel=0.01)


def test_refusals_have_reasons():
    needs = max(row.memory_bytes for row in rows("latency", cluster(1, latency_s=1e-3))[0].layouts)
    found, by_layout = rows("latency", cluster(4, latency_s=1e-3, memory=needs - 1))
    reasons = {str(each.layout): each.reason for each in found.refused}
    assert f"rank 0 needs {needs:,} bytes" in reasons["tp 1, pp 1"] and "tp 1, pp 1" not in by_layout
    assert "more than the 2 layers" in reasons["tp 1, pp 4"]
    assert "tp 2, pp 1, cut sum" in by_layout


def test_a_model_that_fits_nowhere_is_one_line():
    with pytest.raises(InputError, match="no division of rand:tiny fits the cluster") as caught:
        rows("latency", cluster(2, latency_s=1e-3, memory=1000))
    assert "\n" not in str(caught.value)
