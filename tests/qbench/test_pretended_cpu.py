"""QBENCH_CPU: a process and its children pretend a lesser processor, and their records say so."""

import json
import os
import subprocess
import sys
from functools import cache

import pytest

import cpu_kernels
from qbench import PRETENDED_LIBRARIES
from qbench.measure.host.machine import machine

ISAS = ("scalar", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx")

SEEN = """
import json, os, subprocess, sys
import qbench, cpu_kernels, torch
from qbench.measure.host.machine import machine
found = machine().to_json()
facts = {
    "features": cpu_kernels.features(),
    "chosen": sorted({row["impl"] for row in cpu_kernels.op_table() if row["chosen"]}),
    "recorded": [found.get("pretended_cpu"), found["features"], found["id"]],
    "torch": torch.backends.cpu.get_cpu_capability(),
}
if "parent" in sys.argv:
    done = subprocess.run([sys.executable, "-c", os.environ["SEEN"]], capture_output=True, check=True)
    facts["child"] = json.loads(done.stdout)
print(json.dumps(facts))
"""


@cache
def seen_under(cpu: str, *roles: str) -> dict:
    """The processor that a pretending process sees; of a "parent" its child, too."""
    done = run("-c", SEEN, *roles, cpu=cpu)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@cache
def features() -> list[str]:
    """The features of the machine, also if this process pretends another one."""
    if "QBENCH_CPU" not in os.environ:
        return cpu_kernels.features()
    return json.loads(run("-c", "import cpu_kernels, json; print(json.dumps(cpu_kernels.features()))").stdout)


def run(*command: str, cpu: str | None = None) -> subprocess.CompletedProcess[str]:
    switches = {name for values in PRETENDED_LIBRARIES.values() for name in values}
    env = {name: value for name, value in os.environ.items() if name not in switches}
    env.pop("QBENCH_CPU", None)
    env |= {"SEEN": SEEN} | ({"QBENCH_CPU": cpu} if cpu else {})
    return subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True)


@pytest.mark.parametrize(
    "cpu",
    [
        "scalar",
        "avx2",
        pytest.param("avx_vnni", marks=pytest.mark.exhaustive("two seconds; three are in every run")),
        "amx",
        pytest.param("avx512", marks=pytest.mark.exhaustive("two seconds; three are in every run")),
    ],
)
def test_better_sets_are_masked_and_nothing_is_added(cpu):
    allowed = ISAS[: ISAS.index(cpu) + 1]
    seen = seen_under(cpu)
    assert seen["features"] == [name for name in features() if name in allowed]
    assert {*seen["chosen"]} <= {*seen["features"]}
    assert seen["recorded"][:2] == [cpu, seen["features"]]
    if cpu in ("scalar", "avx2"):
        assert seen["torch"] == {"scalar": "DEFAULT", "avx2": "AVX2"}[cpu]


def test_a_child_sees_the_same_as_its_parent():
    seen = seen_under("avx2", "parent")
    assert seen.pop("child") == seen == seen_under("avx2")


def test_a_masked_processor_is_another_machine_to_the_records():
    if "avx512" not in features():
        pytest.skip("nothing is masked by avx2 on this processor")
    ids = {seen_under(cpu)["recorded"][2] for cpu in ("avx2", "amx")}
    assert len(ids) == 2


def test_avx_vnni_below_a_better_instruction_set_makes_no_other_machine(monkeypatch):
    def machine_with(features: list[str]) -> str:
        monkeypatch.setattr(cpu_kernels, "features", lambda: features)
        machine.cache_clear()
        return machine().id

    low, high = ["scalar", "avx2"], ["avx512", "avx512_vnni"]
    try:
        assert machine_with([*low, "avx_vnni", *high]) == machine_with([*low, *high])
        assert machine_with([*low, "avx_vnni"]) != machine_with(low)
    finally:
        machine.cache_clear()


def test_a_call_cannot_name_a_masked_set():
    code = "import cpu_kernels, numpy; cpu_kernels.gram.add_gram(*numpy.zeros((2, 4, 4), 'f4'), isa='avx2')"
    done = run("-c", f"import cpu_kernels.gram; {code}", cpu="scalar")
    assert done.returncode == 1 and "gram: isa=avx2: this machine cannot; it has scalar" in done.stderr


@pytest.mark.parametrize(
    "cpu, arguments, message",
    [
        ("sse9", ["models"], "qbench: QBENCH_CPU=sse9: unknown processor; known are scalar, avx2, avx_vnni, avx512"),
        ("avx2", ["selftest", "--emulate-amx"], "qbench: --emulate-amx: AMX kernels also need avx512, avx512_vnni"),
        ("avx2", ["selftest", "--emulate-avx-vnni"], "qbench: --emulate-avx-vnni: QBENCH_CPU=avx2 leaves AVX-VNNI out"),
        ("scalar", ["selftest", "--emulate-avx-vnni"], "qbench: --emulate-avx-vnni: AVX-VNNI kernels also need avx2"),
    ],
)
def test_bad_input_is_one_line(cpu, arguments, message):
    done = run("-m", "qbench.cli.main", *arguments, cpu=cpu)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(message) and done.stderr.count("\n") == 1
