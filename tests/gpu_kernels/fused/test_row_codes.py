"""Codes of rows: FP8 conversion over every pattern that matters, and the bound that judges the fused steps."""

import pytest
import torch
import triton
import triton.language as tl

from gpu_kernels.fp8_triton import fp8_codes, has_conversion
from gpu_kernels.fused.row_codes import CODE_DTYPES, SMALLEST_SCALE, check_quantize, codes_agree, row_codes_ref
from gpu_kernels.launch import INTERPRETED_AS, Launch

kinds = pytest.mark.parametrize("quantize", CODE_DTYPES)


@triton.jit
def convert_kernel(x_ptr, codes_ptr, N, BLOCK: tl.constexpr, FORMAT: tl.constexpr, HAS_CONVERSION: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b_x = tl.load(x_ptr + o, mask=o < N, other=0.0)
    tl.store(codes_ptr + o, fp8_codes(b_x, FORMAT, HAS_CONVERSION), mask=o < N)


def convert(x, codes, form, has_conversion):
    arguments = {"x_ptr": x, "codes_ptr": codes, "N": len(x), "BLOCK": 4096}
    arguments |= {"FORMAT": form, "HAS_CONVERSION": has_conversion}
    Launch(convert_kernel, (triton.cdiv(len(x), 4096),), arguments, 4).run(x.device)


FORMS = {"e4m3": (torch.float8_e4m3fn, 0x7E), "e5m2": (torch.float8_e5m2, 0x7B)}  # type, largest code


@pytest.mark.parametrize("form", FORMS)
def test_fp8_codes_are_torchs(run, form):
    """Every bfloat16 up to the largest code, every half step between codes, and their neighbours."""
    dtype, last = FORMS[form]
    largest = torch.finfo(dtype).max
    patterns = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    codes = torch.arange(last + 1, dtype=torch.uint8).view(dtype).float()
    halves = (codes[1:] + codes[:-1]) / 2
    beside = torch.cat([halves, halves.nextafter(codes[1:]), halves.nextafter(codes[:-1])])
    x = torch.cat([patterns[patterns.abs() <= largest], beside, -beside]).to(run.device)
    for native in [False] if run.interpreted else [False, True]:
        got = torch.full(x.shape, 0x7F, dtype=torch.uint8, device=run.device)
        run(convert, x, got, form, native)
        assert torch.equal(got, x.to(dtype).view(torch.uint8))


@pytest.mark.parametrize("form", FORMS)
def test_fp8_codes_saturate_and_keep_nan(run, form):
    dtype, last = FORMS[form]
    x = torch.tensor([1.01, 1e30, torch.inf, -1.2, -torch.inf, torch.nan], device=run.device) * torch.finfo(dtype).max
    got = torch.zeros(6, dtype=torch.uint8, device=run.device)
    run(convert, x, got, form, False)
    negative = last | 0x80
    assert got[:5].tolist() == [last, last, last, negative, negative] and got[5].item() & 0x7F == 0x7F


def test_has_conversion():
    assert has_conversion(90, convert_kernel) and has_conversion(89, convert_kernel)
    assert not has_conversion(80, convert_kernel)
    assert not has_conversion(INTERPRETED_AS, convert)  # the interpreter's form of a kernel is no JITFunction


def test_fp8_ref_by_hand():
    y = torch.tensor([[896.0, -2.0, 0.0, 2 * 17.0], [0.0] * 4, [1.0, torch.nan, 2.0, 3.0]])
    q, scale = row_codes_ref(y, "fp8")
    assert q.float().tolist() == [[448.0, -1.0, 0.0, 16.0], [0.0] * 4, [0.0] * 4]  # 17 is halfway to 18: to even
    assert scale[:2].tolist() == [2.0, SMALLEST_SCALE] and scale[2].isnan()


@kinds
def test_codes_agree_finds_wrong_codes(quantize):
    y = torch.randn(7, 63, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y[3, 5] = torch.nan
    error = torch.zeros_like(y)
    q, scale = row_codes_ref(y.float(), quantize)
    assert codes_agree(q, scale, y, error, quantize)
    one_off = q.view(torch.int8).clone()
    largest = y[0].abs().argmax()
    one_off[0, largest] -= 3  # of the largest code, which is no half step away
    assert not codes_agree(one_off.view(q.dtype), scale, y, error, quantize)
    assert not codes_agree(q, scale * (1 + 2**-20), y, error, quantize)
    assert not codes_agree(q, scale.nan_to_num(), y, error, quantize)
    assert codes_agree(q, scale * (1 + 2**-20), y, 2**-19 * y.abs(), quantize)


def test_unknown_quantization():
    with pytest.raises(
        NotImplementedError, match=r"op: got quantize 'int4', expected None or one of \['int8', 'fp8'\]"
    ):
        check_quantize("op", "int4")
