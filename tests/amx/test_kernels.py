"""The tests of the kernels once more, in a process that has AMX: their true machine code, executed by the emulator."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from support import amx

import cpu_kernels

# Each has tests whose id names the instruction set. Few tokens have no tiles: on a machine with AMX they take AVX-512.
LINEARS = ("linear_bf16", "linear_int8", "linear_float", "linear_tokens")
ATTENTION = ("attention", "attention_blocks", "attention_mass", "attention_sinks")
KERNEL_TESTS = [f"tests/cpu_kernels/test_{name}.py" for name in (*LINEARS, *ATTENTION, "llm_int8", "moe", "dispatch")]
OF_AMX = "([amx or -amx or few_tokens_take) and not -direct and not 4096"

SELF_TEST = """
import json
from dataclasses import asdict
from qbench.kernels.registry import kernels
from qbench.kernels.selftest import selftest
ops = ("linear_q4_k", "moe_q4_k", "feed_forward", "attention")  # and attention_step
rows = [row for op in ops for row in selftest(kernels(), op)]
print(json.dumps([asdict(row) for row in rows if row.isa == "amx"]))
"""


def run_tests(emulator: Path, files: list[str], selected: str, marks: str = "") -> subprocess.CompletedProcess[str]:
    # faulthandler would take the signal that the emulator lives by.
    plugins = ("-p", "no:faulthandler", "-p", "no:cacheprovider")
    command = [*amx.PYTHON, "-m", "pytest", "-q", *plugins, *files, "-k", selected, "-m", marks]
    return amx.run_emulated(emulator, command)


def num_passed(output: str) -> int:
    match = re.search(r"(\d+) passed", output)
    return int(match[1]) if match else 0


@pytest.mark.skipif("amx" in cpu_kernels.features(), reason="this machine has AMX: these tests have just run on it")
@pytest.mark.parametrize(
    "marks, least",
    [
        pytest.param("not exhaustive", 50, id="sample"),
        pytest.param("exhaustive", 100, id="rest", marks=pytest.mark.exhaustive("the emulator takes half a minute")),
    ],
)
def test_every_amx_kernel_passes_its_tests(kernels_emulator, marks, least):
    done = run_tests(kernels_emulator, KERNEL_TESTS, OF_AMX, marks)
    assert done.returncode == 0, done.stdout + done.stderr
    assert num_passed(done.stdout) > least
    assert "skipped" not in done.stdout
    assert re.search(r"^linear: .*\bamx$", done.stdout, re.MULTILINE)


@pytest.mark.skipif("amx" in cpu_kernels.features(), reason="this machine has AMX: the self-test runs on it")
def test_the_self_test_is_green(kernels_emulator):
    """A linear on codes, the experts and the steps that are made of it."""
    done = amx.run_code(kernels_emulator, SELF_TEST, QBENCH_LINEAR_PATH="bf16")
    assert {row["op"] for row in done} == {"linear_q4_k", "moe_q4_k", "feed_forward", "attention", "attention_step"}
    assert {row["status"] for row in done} == {"ok, emulated"}, done


@pytest.mark.skipif("amx" in cpu_kernels.features(), reason="this machine has AMX: it is not emulated there")
def test_a_user_has_it_emulated(kernels_emulator):
    command = ["-m", "qbench.cli.main", "selftest", "--only", "linear_q8_0", "--emulate-amx", "--json"]
    done = subprocess.run([*amx.PYTHON, *command], capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["emulated"] == 1 and not found["not_executed"]
    assert "amx (emulated)" in found["features"]


@pytest.mark.skipif("amx" in cpu_kernels.features(), reason="this machine has AMX: it is not emulated there")
def test_a_kernel_with_another_instruction_is_seen(tmp_path, kernels_emulator):
    """An emulator that takes signed activations for unsigned ones: as if the kernels said tdpbuud for tdpbsud."""
    right, wrong = "multiply_int8<int8_t, uint8_t>", "multiply_int8<uint8_t, uint8_t>"
    sources = []
    for source in amx.SOURCES:
        sources.append(tmp_path / source.name)
        sources[-1].write_text(source.read_text().replace(right, wrong))
    assert sum(right in source.read_text() for source in amx.SOURCES) == 1
    flags = ("-shared", "-fPIC", f"-I{amx.SOURCES[0].parent}")
    broken = amx.build(tmp_path / "libamx.so", sources, *flags)
    done = run_tests(
        broken, ["tests/cpu_kernels/test_linear_int8.py"], "test_integers_are_exact_at_their_extremes and amx"
    )
    assert done.returncode == 1
    assert "1 failed" in done.stdout
