import math

import pytest
import torch

from gpu_kernels.fused.quantize_per_token import IN_DTYPES, quantize_per_token, quantize_per_token_ref
from gpu_kernels.fused.quantize_per_token_triton import MAX_BLOCK_K, quantize_per_token_triton
from gpu_kernels.fused.row_codes import CODE_DTYPES, SMALLEST_SCALE

dtypes = pytest.mark.parametrize("dtype", IN_DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))


def make(M, K, dtype, device="cpu"):
    """Normal values over six orders of magnitude, row by row."""
    generator = torch.Generator().manual_seed(0)
    size = 10.0 ** torch.linspace(-3, 3, M)[:, None]
    return (torch.randn(M, K, generator=generator) * size).to(dtype).to(device)


def check(run, x, codes="int8"):
    """The kernel's codes and scales equal the oracle's, bit by bit; a scale is NaN if the oracle's is NaN."""
    x_q = torch.full(x.shape, -128, dtype=torch.int8, device=x.device)  # no code of int8; of FP8 it is -0
    x_q = x_q.view(CODE_DTYPES[codes])
    x_scale = torch.full(x.shape[:1], -1.0, device=x.device)
    run(quantize_per_token_triton, x, x_q, x_scale)
    expected_q, expected_scale = quantize_per_token_ref(x, codes)
    assert torch.equal(x_q.float(), expected_q.float())
    assert torch.equal(x_scale.nan_to_num(nan=-2.0), expected_scale.nan_to_num(nan=-2.0))


# -- the oracle


@dtypes
def test_ref_equals_textbook_loop(dtype):
    """The loop is in float64, which gives the same codes: no x / scale of this seed is within 2**-17 of a half."""
    x = make(3, 17, dtype)
    x_q, x_scale = quantize_per_token_ref(x)
    for m, row in enumerate(x.double().tolist()):
        scale = max(map(abs, row)) / 127
        assert math.isclose(x_scale[m].item(), scale, rel_tol=2**-24)
        assert x_q[m].tolist() == [round(value / scale) for value in row]


def test_ref_hand_written():
    x = torch.tensor([[127.0, -127.0, 0.5, 1.5, 2.5, -2.5], [0.0] * 6])
    x_q, x_scale = quantize_per_token_ref(x)
    assert x_q.tolist() == [[127, -127, 0, 2, 2, -2], [0] * 6]
    assert x_scale.tolist() == [1.0, SMALLEST_SCALE]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_ref_marks_rows_without_a_scale(bad):
    x = torch.ones(2, 5)
    x[0, 3] = bad
    x_q, x_scale = quantize_per_token_ref(x)
    assert x_scale[0].isnan() and x_q[0].tolist() == [0] * 5
    assert x_scale[1].isfinite() and x_q[1].tolist() == [127] * 5


# -- the kernel


@dtypes
@pytest.mark.parametrize("M, K", [(1, 1), (3, 3), (63, 63), (3, 131), (131, 1), (2, MAX_BLOCK_K + 5)])
def test_odd_shapes(run, M, K, dtype):
    check(run, make(M, K, dtype, run.device))


def test_fp8_codes_match_the_reference(run):
    check(run, make(3, 131, torch.bfloat16, run.device), "fp8")


def test_halves_round_to_even(run):
    check(run, torch.arange(-254, 255, device=run.device)[None, :] / 2.0)


# The interpreter reads subnormal bfloat16 as 0: their int8 codes are 0 anyway, and their FP8 codes are not.
EXTREME = [*((dtype, "int8") for dtype in IN_DTYPES), (torch.float16, "fp8"), (torch.float32, "fp8")]


@pytest.mark.parametrize("dtype, codes", EXTREME, ids=lambda value: str(value).removeprefix("torch."))
def test_extreme_rows(run, dtype, codes):
    """Zeros; the largest finite value; the smallest subnormal; NaN and inf first, last and alone."""
    x = make(9, 131, dtype, run.device)
    x[0] = 0
    x[1, ::2] = torch.finfo(dtype).max
    x[2] = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    x[3, 0] = torch.nan
    x[4, 130] = -torch.inf
    x[5] = torch.nan
    x[6, 7], x[6, 8] = torch.inf, torch.nan
    check(run, x, codes)


def test_strided_rows_match_the_reference(run):
    x = make(131, 63, torch.float16, run.device).T
    check(run, x[::2, 1::3])


def test_public_function_runs_triton_by_name(run):
    x = make(3, 63, torch.float16, run.device)
    x_q, x_scale = run(quantize_per_token, x, impl="triton")
    expected_q, expected_scale = quantize_per_token_ref(x)
    assert torch.equal(x_q, expected_q) and torch.equal(x_scale, expected_scale)


# -- refusals of the public function


def test_empty_rows_have_the_smallest_scale():
    for M, K in ((0, 5), (3, 0)):
        x_q, x_scale = quantize_per_token(torch.empty(M, K))
        assert x_q.shape == (M, K) and x_scale.tolist() == [SMALLEST_SCALE] * M


def test_codes_that_no_product_takes():
    with pytest.raises(NotImplementedError, match=r"got codes 'int4', expected one of \['int8', 'fp8'\]"):
        quantize_per_token(torch.ones(2, 3), "int4")


REFUSED = {
    "integers": (torch.zeros(3, 7, dtype=torch.int8), TypeError, "got x torch.int8, expected torch.float16 or"),
    "float64": (torch.zeros(3, 7).double(), TypeError, "got x torch.float64"),
    "one axis": (torch.zeros(7), ValueError, r"got x \[7\], expected \[M, K\]"),
    "meta": (torch.zeros(3, 7, device="meta"), NotImplementedError, r"expected a device of \['cpu', 'cuda'\]"),
}


@pytest.mark.parametrize("x, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_rows_are_refused(x, error, message):
    with pytest.raises(error, match=message):
        quantize_per_token(x)
