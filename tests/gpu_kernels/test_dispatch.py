import subprocess
import sys

import pytest
import torch

from gpu_kernels import dispatch
from gpu_kernels.dispatch import FAMILIES, IMPLEMENTATIONS, implementation, implementation_name
from gpu_kernels.fused.silu_mul import silu_mul

ROWS = [(op, device, impl) for (op, device), row in IMPLEMENTATIONS.items() for impl in row]


@pytest.mark.parametrize("op, device, impl", ROWS, ids="-".join)
def test_every_entry_loads(op, device, impl):
    assert callable(implementation(op, device, impl))


@pytest.mark.parametrize("op", sorted({op for op, _ in IMPLEMENTATIONS}))
def test_default_is_triton_on_a_gpu_and_the_reference_on_a_cpu(op):
    assert implementation_name(op, "cuda") == "triton"
    assert implementation_name(op, "cpu") == "reference"


def test_families_share_no_row():
    assert sum(map(len, FAMILIES.values())) == len(IMPLEMENTATIONS)


def test_the_named_entry_runs(monkeypatch):
    ran = []
    monkeypatch.setitem(dispatch.IMPLEMENTATIONS, ("op", "cpu"), {"first": "fake:first", "second": "fake:second"})
    fake = type(sys)("fake")
    fake.first, fake.second = lambda: ran.append("first"), lambda: ran.append("second")
    monkeypatch.setitem(sys.modules, "fake", fake)
    implementation("op", "cpu")()
    implementation("op", "cpu", "second")()
    assert ran == ["first", "second"]


def test_nothing_runs_for_empty_results(monkeypatch):
    """Three rows are computed, zero rows are only allocated; a name that the table lacks is refused for both."""

    class Rows:
        def __init__(self, count):
            self.count = count

        def empty(self):
            return torch.zeros(self.count)

    ran = []
    fake = type(sys)("fake")
    fake.run = lambda operands, y: ran.append(operands.count) or y.fill_(7)
    monkeypatch.setitem(dispatch.IMPLEMENTATIONS, ("op", "cpu"), {"run": "fake:run"})
    monkeypatch.setitem(sys.modules, "fake", fake)
    assert dispatch.results_of("op", Rows(3), None).tolist() == [7, 7, 7]
    assert dispatch.results_of("op", Rows(0), None).tolist() == []
    assert ran == [3]
    with pytest.raises(NotImplementedError, match="got impl 'other'"):
        dispatch.results_of("op", Rows(0), "other")


def test_missing_triton_is_reported(monkeypatch):
    """None in sys.modules is how Python spells a module that is not there."""
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "gpu_kernels.gemm.gguf_gemm_triton", raising=False)
    with pytest.raises(RuntimeError, match="triton is not installed; pip install triton, or ask for impl='reference'"):
        implementation("gguf_gemm", "cuda")


def test_import_of_the_public_modules_is_light():
    """None loads Triton until a kernel is asked for, so a machine without it has the oracles."""
    modules = {
        where.split(":")[0] for row in IMPLEMENTATIONS.values() for name, where in row.items() if name != "triton"
    }
    code = f"import sys, {', '.join(sorted(modules))}; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_forced_implementation_runs():
    dispatch.force("triton")
    try:
        assert dispatch.implementation_name("w8a8_gemm", "cpu") == "triton"
        assert dispatch.implementation_name("w8a8_gemm", "cpu", "reference") == "reference"
        with pytest.raises(RuntimeError, match="got cpu tensors with TRITON_INTERPRET not set"):
            silu_mul(torch.ones(1, 4), torch.ones(1, 4))
    finally:
        dispatch.force(None)
    assert dispatch.implementation_name("w8a8_gemm", "cpu") == "reference"
