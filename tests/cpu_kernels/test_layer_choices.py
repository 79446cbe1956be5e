"""A decoder layer keeps its choice of implementations until the environment or a switch point changes."""

import re
from pathlib import Path

import pytest
import torch

import cpu_kernels
from qbench.runtime import load_model
from qbench.sources import open_source

CSRC = Path(__file__).parents[2] / "cpu_kernels/csrc"


def test_every_variable_that_chooses_is_watched():
    found = {name for file in CSRC.rglob("*.*") for name in re.findall(r'getenv\("(QBENCH_\w+)"\)', file.read_text())}
    watching = (CSRC / "dispatch.cpp").read_text().partition("environment_version()")[2]
    watched = set(re.findall(r'"(QBENCH_\w+)"', watching))
    assert watched == found - {"QBENCH_CPU"}, "QBENCH_CPU is read once per process"


@pytest.mark.skipif("avx2" not in cpu_kernels.features(), reason="one instruction set leaves no choice")
def test_a_forced_instruction_set_holds_from_the_next_step_on(monkeypatch):
    model = load_model(open_source("rand:tiny"))
    cache = model.new_cache(capacity=16)

    def ran(isa: str) -> str:
        monkeypatch.setenv("QBENCH_ISA", isa)
        model(torch.tensor([[1]]), cache, last_only=True)
        return cache.kernel_view(1).stores[0].last_isa

    assert [ran(isa) for isa in ("avx2", "scalar", "scalar", "avx2")] == ["avx2", "scalar", "scalar", "avx2"]
