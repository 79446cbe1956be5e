"""Exact: scales are powers of two, activations and weights of outliers multiples of 1/8 below 4, so every sum is a
multiple of 2**-12 below 2**11 times the scales; y is then rounded once."""

import itertools

import pytest
import torch
from support.close import assert_close

from gpu_kernels.gemm.llm_int8_gemm import Operands, llm_int8_gemm, llm_int8_gemm_ref
from gpu_kernels.gemm.llm_int8_gemm_triton import llm_int8_gemm_triton
from gpu_kernels.gemm.w8a8_gemm import MAX_K, w8a8_gemm_ref


def make(M, N, K, F, device="cpu"):
    """Activations that are no outliers are NaN: they must not be read."""
    generator = torch.Generator().manual_seed(M + N + K + F)

    def integers(low, high, *shape, dtype=torch.int8):
        return torch.randint(low, high, shape, generator=generator, dtype=dtype)

    x = torch.full((M, K), torch.nan, dtype=torch.float16)
    features = torch.randperm(K, generator=generator)[:F].int()
    x[:, features.long()] = integers(-31, 32, M, F).half() / 8
    x_q = integers(-128, 128, M, K)
    x_q[:, features.long()] = 0
    scales = [2.0 ** integers(-6, -4, size, dtype=torch.int32) for size in (M, N)]
    outlier_weight = integers(-31, 32, N, F).half() / 8
    operands = (x_q, scales[0].float(), integers(-128, 128, N, K), scales[1].float(), x, features, outlier_weight)
    return [operand.to(device) for operand in operands]


def check_exact(run, operands, bias=None):
    y = torch.full((len(operands[0]), len(operands[2])), torch.nan, dtype=torch.float16, device=run.device)
    run(llm_int8_gemm_triton, Operands(*operands, bias=bias), y)
    assert torch.equal(y, llm_int8_gemm_ref(Operands(*operands, bias=bias)).half())


def test_ref_equals_textbook_loop():
    x_q, x_scale, weight_q, weight_scale, x, features, outlier_weight = operands = make(3, 5, 7, 2)
    expected = torch.zeros(3, 5, dtype=torch.float64)
    for m, n in itertools.product(range(3), range(5)):
        acc = sum(int(x_q[m, k]) * int(weight_q[n, k]) for k in range(7))
        expected[m, n] = acc * x_scale[m].item() * weight_scale[n].item()
        expected[m, n] += sum(x[m, k].item() * outlier_weight[n, f].item() for f, k in enumerate(features.tolist()))
    assert_close(llm_int8_gemm_ref(Operands(*operands)), expected, rtol=4 * 2**-53, atol=9 * 2**-53)


def test_without_rounding_it_is_the_plain_product():
    """Outliers that int8 holds exactly may as well be in the int8 product."""
    _, _, weight_q, weight_scale, _, features, _ = make(3, 5, 64, 4)
    x = torch.randint(-8, 8, (3, 64), generator=torch.Generator().manual_seed(0))
    inliers = x.clone()
    inliers[:, features.long()] = 0
    one = torch.ones(3)
    outlier_weight = (weight_q[:, features.long()] * weight_scale[:, None]).half()
    codes = inliers.to(torch.int8), one, weight_q, weight_scale
    got = llm_int8_gemm_ref(Operands(*codes, x.half(), features, outlier_weight))
    assert torch.equal(got, w8a8_gemm_ref(x.to(torch.int8), one, weight_q, weight_scale))


@pytest.mark.parametrize("F", [0, 1, 33])
@pytest.mark.parametrize("M, N, K", [(1, 3, 63), (3, 131, 64), (17, 63, 131), (131, 67, 192)])
def test_odd_shapes(run, M, N, K, F):
    check_exact(run, make(M, N, K, F, run.device))


def test_bias_and_strides(run):
    operands = make(5, 35, 64, 7, run.device)
    strided = [torch.stack([operand, operand], dim=-1)[..., 1] for operand in operands]
    check_exact(run, strided, torch.arange(35, device=run.device) / 4)


def test_few_tokens_are_split(run):
    """2048 features over 8 programs a tile, of which one adds the outliers."""
    check_exact(run, make(5, 67, 2048, 7, run.device))


def test_nan_outlier_stays_in_its_token(run):
    operands = make(5, 35, 64, 7, run.device)
    operands[4][2, operands[5][3].long()] = torch.nan
    y = torch.zeros(5, 35, dtype=torch.float16, device=run.device)
    run(llm_int8_gemm_triton, Operands(*operands), y)
    assert y[2].isnan().all() and y[[0, 1, 3, 4]].isfinite().all()


def test_public_function(run):
    operands = make(3, 35, 64, 5, run.device)
    expected = llm_int8_gemm_ref(Operands(*operands)).half()
    assert torch.equal(run(llm_int8_gemm, Operands(*operands), impl="triton"), expected)
    assert torch.equal(llm_int8_gemm(Operands(*operands), impl="reference"), expected)


NAMES = ("x_q", "x_scale", "weight_q", "weight_scale", "x", "outlier_features", "outlier_weight")
BIG = torch.zeros(1, dtype=torch.int8).expand(3, MAX_K + 1)
REFUSED = {
    "float32": (dict(x=torch.zeros(3, 64)), TypeError, "got x torch.float32"),
    "another K": (dict(x=torch.zeros(3, 63).half()), ValueError, r"got x \[3, 63\], expected \[rows, 64\]"),
    "int64 features": (dict(outlier_features=torch.zeros(4).long()), TypeError, "got outlier_features torch.int64"),
    "another F": (dict(outlier_weight=torch.zeros(5, 3).half()), ValueError, r"got outlier_weight \[5, 3\], expected"),
    "another dtype": (dict(outlier_weight=torch.zeros(5, 4)), TypeError, "got outlier_weight torch.float32"),
    "K past int32": (dict(x_q=BIG, x=BIG.half(), weight_q=BIG), NotImplementedError, "expected at most 131071"),
}


@pytest.mark.parametrize("change, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_operands_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        llm_int8_gemm(Operands(**dict(zip(NAMES, make(3, 5, 64, 4), strict=True)) | change))


def test_cpu_tensors_outside_the_interpreter():
    with pytest.raises(RuntimeError, match="got cpu tensors with TRITON_INTERPRET not set"):
        llm_int8_gemm(Operands(*make(3, 5, 64, 4)), impl="triton")
