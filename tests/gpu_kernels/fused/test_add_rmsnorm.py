"""The oracle, and refusals; proof/test_check.py holds the kernel against the oracle over its problems."""

import math

import pytest
import torch
import torch.nn.functional as F
from support.close import assert_close

from gpu_kernels.fused.add_rmsnorm import IN_DTYPES, MAX_K, add_rmsnorm, add_rmsnorm_ref
from gpu_kernels.fused.add_rmsnorm_problems import agrees

dtypes = pytest.mark.parametrize("dtype", IN_DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))


def make(M, K, dtype=torch.float32, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    x, residual = torch.randn(2, M, K, generator=generator).to(dtype)
    return x.to(device), (torch.rand(K, generator=generator) + 0.5).to(dtype).to(device), residual.to(device)


def test_ref_equals_textbook_loop():
    x, weight, residual = make(3, 5, torch.float64)
    y, h = add_rmsnorm_ref(x.float(), weight.float(), residual=residual.float(), eps=0.25, plus_one=True)
    for m in range(3):
        row = [x[m, k].float() + residual[m, k].float() for k in range(5)]
        root = math.sqrt(sum(float(value) ** 2 for value in row) / 5 + 0.25)
        assert h[m].tolist() == [value.item() for value in row]
        expected = [float(row[k]) / root * (1 + float(weight[k].float())) for k in range(5)]
        assert_close(y[m], expected, rtol=16 * 2**-53)


@dtypes
def test_ref_is_torchs(dtype):
    """torch rounds h to its type, normalizes in float32 and rounds once."""
    x, weight, residual = make(7, 131, dtype)
    y, h = add_rmsnorm_ref(x, weight, residual=residual, eps=1e-5)
    assert torch.equal(h, x + residual)
    theirs = F.rms_norm(h, (131,), weight, 1e-5)
    assert_close(y, theirs, rtol=2 * torch.finfo(dtype).eps + 132 * 2**-24, atol=torch.finfo(dtype).tiny)


@pytest.mark.parametrize("quantize", [None, "int8", "fp8"])
def test_cpu_default_is_the_reference(quantize):
    x, weight, residual = make(3, 63)
    result = add_rmsnorm(x, weight, residual=residual, quantize=quantize)
    assert agrees(result, add_rmsnorm_ref(x, weight, residual=residual), quantize)


@pytest.mark.parametrize("quantize", [None, "int8", "fp8"])
def test_strided_rows_and_special_values(run, quantize):
    """Columns of a wider buffer full of NaN; rows of zeros, with NaN and with inf; nothing reaches another row."""
    x, weight, residual = make(6, 65, torch.float16, run.device)
    x[1], residual[1] = 0, 0
    x[2, 7], residual[3, 64], x[4, 0] = torch.nan, torch.inf, 60000
    buffer = torch.full((6, 2 * 65 + 9), torch.nan, dtype=torch.float16, device=run.device)
    view = buffer[:, 4 : 4 + 2 * 65 : 2]
    view.copy_(x)
    result = run(add_rmsnorm, view, weight, residual=residual, quantize=quantize, impl="triton")
    assert agrees(result, add_rmsnorm_ref(x, weight, residual=residual), quantize)
    assert result[0][0].float().isfinite().all() and result[0][5].float().isfinite().all()


def test_a_row_does_not_depend_on_its_batch(run):
    """Rows that share a program equal those of each alone."""
    x, weight, residual = make(19, 63, torch.float32, run.device)
    together = run(add_rmsnorm, x, weight, residual=residual, quantize="int8", impl="triton")
    for m in (0, 18):
        alone = run(add_rmsnorm, x[m : m + 1], weight, residual=residual[m : m + 1], quantize="int8", impl="triton")
        assert all(torch.equal(one[0], all_[m]) for one, all_ in zip(alone, together, strict=True))


def test_no_rows():
    y, scale, h = add_rmsnorm(torch.empty(0, 5), torch.ones(5), residual=torch.empty(0, 5), quantize="fp8")
    assert (y.shape, y.dtype, scale.shape, h.shape) == ((0, 5), torch.float8_e4m3fn, (0,), (0, 5))


X = torch.zeros(3, 7)
REFUSED = {
    "float64": (dict(x=X.double()), TypeError, "got x torch.float64, expected torch.float16 or"),
    "integer weight": (dict(weight=torch.ones(7, dtype=torch.int8)), TypeError, "got weight torch.int8"),
    "one axis": (dict(x=X[0]), ValueError, r"got x \[7\], expected \[M, K\]"),
    "no features": (dict(x=X[:, :0], weight=torch.ones(0)), ValueError, "K of 1 or more"),
    "weight of another K": (dict(weight=torch.ones(8)), ValueError, r"got weight \[8\], expected \[7\]"),
    "residual of another M": (dict(residual=X[:2]), ValueError, r"got residual torch.float32 \[2, 7\]"),
    "residual of another type": (dict(residual=X.half()), ValueError, "got residual torch.float16"),
    "two devices": (dict(weight=torch.ones(7, device="meta")), ValueError, "got weight on meta and x on cpu"),
    "int4": (dict(quantize="int4"), NotImplementedError, "got quantize 'int4', expected None or one of"),
    "long rows": (
        dict(x=torch.zeros(1, MAX_K + 1), weight=torch.ones(MAX_K + 1)),
        NotImplementedError,
        "got K = 32769, expected at most 32768",
    ),
}


@pytest.mark.parametrize("change, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_operands_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        add_rmsnorm(**{"x": X, "weight": torch.ones(7)} | change)
