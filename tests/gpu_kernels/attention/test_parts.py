"""The shared parts of the kernels, each alone."""

import pytest
import torch
import triton
import triton.language as tl
from support.close import assert_close

from gpu_kernels.attention.parts_triton import combine_launch
from gpu_kernels.fp8_triton import widen

FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


@triton.jit
def widen_kernel(codes_ptr, out_ptr, FORMAT: tl.constexpr):
    o = tl.arange(0, 256)
    tl.store(out_ptr + o, widen(tl.load(codes_ptr + o), FORMAT, out_ptr.dtype.element_ty))


def run_widen(codes, out, format):
    widen_kernel[(1,)](codes, out, format)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("by_integers", [False, True], ids=["converted", "by_integers"])
@pytest.mark.parametrize("form", FP8)
def test_all_fp8_codes(run, form, by_integers, dtype):
    """Each of the 256 codes is torch's cast of it, NaN and inf too, whether the GPU converts it or the kernel does.

    The interpreter's own conversion knows neither NaN and inf nor, in e5m2, subnormals.
    """
    codes = torch.arange(256, device=run.device).byte()
    out = torch.full((256,), -1.0, dtype=dtype, device=run.device)
    run(run_widen, codes if by_integers else codes.view(FP8[form]), out, form)
    expected = codes.view(FP8[form]).to(dtype)
    is_normal = expected.isfinite() & ((expected == 0) | (expected.abs() >= torch.finfo(FP8[form]).smallest_normal))
    told = is_normal if run.interpreted and not by_integers else slice(None)
    assert_close(out[told], expected[told])


def test_all_int8_codes(run):
    codes = torch.arange(-128, 128, device=run.device).to(torch.int8)
    out = torch.full((256,), torch.nan, dtype=torch.float16, device=run.device)
    run(run_widen, codes, out, "int8")
    assert torch.equal(out, codes.half())


def run_combine(*tensors):
    combine_launch(*tensors).run(tensors[0].device)


@pytest.mark.parametrize("head_size", [1, 63, 80, 512])
def test_combine_merges_parts_by_their_lse(run, head_size):
    """Parts that saw nothing weigh nothing, wherever they are; NaN stays in its row."""
    generator = torch.Generator().manual_seed(0)
    partial = torch.randn(5, 4, head_size, generator=generator).to(run.device)
    partial_lse = (8 * torch.randn(5, 4, generator=generator)).to(run.device)
    partial_lse[0, 0] = partial_lse[1, 3] = partial_lse[2] = -torch.inf
    partial[2] = 0.0
    partial_lse[3, 1] = partial[3, 1] = torch.nan
    out = torch.full((5, head_size), torch.nan, device=run.device)
    lse = torch.full((5,), torch.nan, device=run.device)
    run(run_combine, partial, partial_lse, out, lse)

    weight = partial_lse.double().softmax(-1)
    expected = torch.einsum("rs,rsd->rd", weight, partial.double())
    expected[2] = 0.0
    # Each of four parts is rescaled and added: a few roundings, and exp2 within 2**-21, of values below 5.
    assert_close(out, expected, atol=5 * 4 * 2**-21)
    assert_close(lse, partial_lse.double().logsumexp(-1), rtol=2**-21, atol=4 * 2**-21)
