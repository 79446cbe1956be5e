"""AMX without the machine: the emulator itself, and who may ask for it."""

from pathlib import Path

import pytest
from support import amx

import cpu_kernels

PROGRAM = Path(__file__).with_name("test_emulator.cpp")
# `features()` obeys QBENCH_CPU. The processor does not: its tile instructions run whatever a test pretends.
NATIVE_AMX = "amx_tile" in Path("/proc/cpuinfo").read_text()


@pytest.mark.skipif(NATIVE_AMX, reason="this machine has AMX: not all of its tile instructions trap")
def test_emulator_follows_the_manual(tmp_path, emulator):
    """A fault ends the program by its own signal, which AddressSanitizer, preloaded by `make asan`, would take."""
    program = amx.build(tmp_path / "test_emulator", [PROGRAM])
    done = amx.run_emulated(emulator, [str(program)], ASAN_OPTIONS="detect_leaks=0:handle_segv=0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 60_000


@pytest.mark.skipif(NATIVE_AMX, reason="this machine has AMX: not all of its tile instructions trap")
@pytest.mark.parametrize(
    "broken, symptom",
    [
        pytest.param(('"r"(stride), "i"(tile) : "memory"', '"r"(stride), "i"(tile)'), "local buffer", id="load"),
        pytest.param(('"m"(config)', '"m"(config.palette)'), "not configured", id="configure"),
    ],
)
def test_wrappers_that_hide_memory_from_the_compiler_fail(tmp_path, emulator, broken, symptom):
    header = amx.ROOT / "cpu_kernels/csrc/simd/tiles.inl"
    assert broken[0] in header.read_text()
    (tmp_path / "simd").mkdir()
    (tmp_path / "simd/tiles.inl").write_text(header.read_text().replace(*broken))
    program = amx.build(tmp_path / "test_emulator", [PROGRAM], f"-I{tmp_path}")
    done = amx.run_emulated(emulator, [str(program)])
    assert done.returncode != 0
    assert symptom in done.stdout + done.stderr


@pytest.mark.skipif(NATIVE_AMX, reason="this machine has AMX")
def test_only_the_emulator_makes_amx_appear(kernels_emulator):
    assert cpu_kernels.emulated_features() == ()
    code = "import cpu_kernels, json; print(json.dumps([cpu_kernels.features(), cpu_kernels.emulated_features()]))"
    features, emulated = amx.run_code(kernels_emulator, code)
    assert features == [*cpu_kernels.features(), "amx"]
    assert emulated == ["amx"]


@pytest.mark.skipif(NATIVE_AMX, reason="this machine has AMX")
def test_records_call_it_emulated(kernels_emulator):
    code = "import json; from qbench.measure.host.machine import machine; print(json.dumps(machine().to_json()))"
    assert "amx (emulated)" in amx.run_code(kernels_emulator, code)["features"]


@pytest.mark.skipif(NATIVE_AMX, reason="this machine has AMX")
@pytest.mark.parametrize("arithmetic, product", [("int8", "tdpbsud"), ("bf16", "tdpbf16ps")])
def test_a_peak_is_measured_with_tiles(kernels_emulator, arithmetic, product):
    code = (
        f"import cpu_kernels, json; from support import amx; peak = cpu_kernels.measure_{arithmetic}_peak(1); "
        "print(json.dumps([peak, amx.counts()]))"
    )
    (rate, _), counts = amx.run_code(kernels_emulator, code)
    assert rate > 0
    assert counts[product] > 0
    assert counts[product] % 4 == 0  # four chains
