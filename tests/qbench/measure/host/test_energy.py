"""Counters of energy from a tree of files as Linux has them and from a library in place of NVIDIA's."""

import shutil
import subprocess
from pathlib import Path

import pytest
from support.close import assert_close

from qbench.measure.host.conditions import Conditions
from qbench.measure.host.energy import Counter, Meter, find_meter, nvml_counters, rapl_counters
from qbench.speed import interleaved
from qbench.speed.interleaved import idle_watts
from qbench.speed.rounds import Rounds, Samples, energy

NO_NVML = "no-such-library.so"
RANGE_UJ = 1_000_000_000


def zone(root: Path, folder: str, name: str, microjoules: int) -> Path:
    path = root / "sys/class/powercap" / folder
    path.mkdir(parents=True, exist_ok=True)
    for file, text in (("name", name), ("energy_uj", microjoules), ("max_energy_range_uj", RANGE_UJ)):
        (path / file).write_text(f"{text}\n")
    return path / "energy_uj"


@pytest.fixture
def tree(tmp_path):
    """Two packages, one with memory of its own; and counters that must not be counted twice."""
    zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 3_000_000)
    zone(tmp_path, "intel-rapl:0:1", "dram", 1_000_000)
    zone(tmp_path, "intel-rapl:1", "package-1", 7_000_000)
    zone(tmp_path, "intel-rapl:2", "psys", 20_000_000)
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 5_000_000)
    return tmp_path


def test_packages_and_memory_are_counted_once(tree):
    meter = find_meter(tree, NO_NVML)
    assert [counter.name for counter in meter.counters] == ["package-0", "dram-0", "package-1"]
    assert meter.read() == [5.0, 1.0, 7.0] and meter.reason is None
    before = meter.read()
    zone(tree, "intel-rapl:0", "package-0", 6_500_000)
    assert meter.since(before) == {"package-0": 1.5, "dram-0": 0.0, "package-1": 0.0}


def test_a_counter_that_starts_again(tree):
    meter = find_meter(tree, NO_NVML)
    zone(tree, "intel-rapl:0", "package-0", RANGE_UJ - 2_000_000)
    before = meter.read()
    zone(tree, "intel-rapl:0", "package-0", 500_000)
    assert_close(meter.since(before)["package-0"], 2.5, rtol=2.0**-40)


def test_missing_counters_have_a_reason(tmp_path):
    meter = find_meter(tmp_path, NO_NVML)
    assert meter.counters == () and meter.read() == [] and meter.since([]) == {}
    assert "RAPL is absent" in meter.reason and f"NVML is absent ({NO_NVML} cannot be loaded)" in meter.reason


def test_counters_that_may_not_be_read(tree):
    # A folder in the file's place cannot be read by root either, as which tests may run.
    path = tree / "sys/class/powercap/intel-rapl:1/energy_uj"
    path.unlink()
    path.mkdir()
    counters, reason = rapl_counters(tree / "sys/class/powercap")
    assert counters == [] and "RAPL is not readable" in reason and str(path) in reason


CARDS = """
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **card) { *card = (void *)(unsigned long)(index + 1); return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *card, unsigned long long *mj) {
    static unsigned long long calls;
    *mj = 1000 * (unsigned long)card + 500 * calls++;
    return STATUS;
}
"""


def library(folder: Path, status: int) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to make a library with")
    source, made = folder / "cards.c", folder / f"libcards{status}.so"
    source.write_text(CARDS)
    subprocess.run([compiler, "-shared", "-fPIC", f"-DSTATUS={status}", source, "-o", made], check=True)
    return str(made)


def test_graphics_cards(tmp_path):
    counters, _ = nvml_counters(library(tmp_path, 0))
    assert [counter.name for counter in counters] == ["gpu-0", "gpu-1"]
    # Two calls found that they can be read; then in joules: 1 of the first card and 2 of the second, and 0.5 per call.
    assert [counter.joules() for counter in counters] == [1 + 2 * 0.5, 2 + 3 * 0.5]


def test_cards_that_do_not_count(tmp_path):
    counters, reason = nvml_counters(library(tmp_path, 3))
    assert counters == [] and "card 0 does not count" in reason


def test_idle_power_is_measured_and_taken_off(monkeypatch):
    monkeypatch.setattr(interleaved, "IDLE_S", 0.05)
    time_of = iter([0.0, 2.0])
    meter = Meter((Counter("package-0", lambda: next(time_of)),), None)
    watts = idle_watts(meter)["package-0"]
    assert 2.0 / 1.0 < watts <= 2.0 / 0.05, "2 J over the pause, which lasts at least as long as asked for"

    moments = [Conditions(None, None, None, None, {"package-0": joules}, 2.0) for joules in (99.0, 50.0, 40.0, 45.0)]
    rounds = Rounds({"pp": [Samples([9.0, 1.0, 1.0, 1.0], moments)]}, meter, {"package-0": 10.0})
    assert energy(rounds, 0).to_json() == {
        "joules": {"pp": {"package-0": 45.0 - 10.0 * 2.0}},
        "idle_watts": {"package-0": 10.0},
        "reason": None,
    }


def test_missing_energy_has_a_reason():
    rounds = Rounds({"pp": [Samples([1.0])]}, Meter((), "nothing to read"), {})
    assert energy(rounds, 0).to_json() == {"joules": None, "reason": "nothing to read"}
    assert idle_watts(rounds.meter) == {}
