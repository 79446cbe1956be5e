"""Exact on the interpreter and on sm_90's 14 bits: codes are whole and at most 3, scales powers of two, so a sum
of 128 products is whole and below 2**11, and its scaled sums multiples of 2**-4 below 2**12."""

import itertools

import pytest
import torch
from support.close import assert_close
from support.gpu_ops import call_op
from support.older_gpu import as_sm_80

from gpu_kernels.gemm.fp8_gemm import FP8, Operands, fp8_gemm, fp8_gemm_ref
from gpu_kernels.gemm.fp8_gemm_triton import fp8_gemm_triton, row
from gpu_kernels.gemm.split_k import make_workspace

SHAPES = [(1, 3, 63), (3, 131, 128), (17, 63, 300), (131, 130, 131)]


def make(M, N, K, scales="token", device="cpu"):
    generator = torch.Generator().manual_seed(M + N + K)

    def codes(rows):
        return torch.randint(-3, 4, (rows, K), generator=generator).float().to(FP8).to(device)

    def powers(*shape):
        return (2.0 ** torch.randint(-2, 2, shape, generator=generator)).to(device)

    blocks = -(-K // 128)
    shapes = {"tensor": ([1], [1]), "token": ([M], [N]), "blocks": ([M, blocks], [-(-N // 128), blocks])}[scales]
    return codes(M), powers(*shapes[0]), codes(N), powers(*shapes[1])


def test_ref_equals_textbook_loop():
    x_q, x_scale, weight_q, weight_scale = make(3, 130, 131, "blocks")
    x, weight = x_q.double().tolist(), weight_q.double().tolist()
    y = fp8_gemm_ref(x_q, x_scale, weight_q, weight_scale)
    for m, n in itertools.product(range(3), (0, 127, 128, 129)):
        terms = (
            x[m][k] * x_scale[m, k // 128].item() * weight[n][k] * weight_scale[n // 128, k // 128].item()
            for k in range(131)
        )
        assert_close(y[m, n], sum(terms))


@pytest.mark.parametrize("scales", ["tensor", "token", "blocks"])
@pytest.mark.parametrize("M, N, K", SHAPES)
def test_odd_shapes(run, M, N, K, scales):
    operands = make(M, N, K, scales, run.device)
    y = run(call_op, fp8_gemm, Operands, *operands, out_dtype=torch.float32, impl="triton")
    assert torch.equal(y.double(), fp8_gemm_ref(*operands))


def test_bias_strides_and_half(run):
    x_q, x_scale, weight_q, weight_scale = make(5, 35, 160, "blocks", run.device)
    bias = torch.arange(35, device=run.device) / 4
    around = torch.full((160, 11), torch.nan, device=run.device).to(FP8)
    around[:, 1::2] = x_q.T
    y = torch.full((5, 35), torch.nan, dtype=torch.float16, device=run.device)
    run(fp8_gemm_triton, Operands(around[:, 1::2].T, x_scale, weight_q, weight_scale, bias=bias), y)
    assert torch.equal(y, fp8_gemm_ref(x_q, x_scale, weight_q, weight_scale, bias).half())


def test_nan_stays_in_its_token(run):
    if run.interpreted:
        pytest.skip("the interpreter reads e4m3's NaN as 480")
    x_q, *rest = make(5, 35, 160, device=run.device)
    x_q = x_q.float()
    x_q[2, 70] = torch.nan
    y = run(call_op, fp8_gemm, Operands, x_q.to(FP8), *rest, out_dtype=torch.float32, impl="triton")
    assert y[2].isnan().all() and y[[0, 1, 3, 4]].isfinite().all()


def test_cpu_default_is_the_reference():
    operands = make(3, 5, 64)
    assert torch.equal(fp8_gemm(Operands(*operands)), fp8_gemm_ref(*operands).bfloat16())
    assert fp8_gemm(Operands(operands[0][:0], operands[1][:0], *operands[2:])).shape == (0, 5)


@pytest.mark.parametrize("scales", ["token", "blocks"])
def test_few_tokens_are_split(run, scales):
    """2048 features over 16 programs a tile, whose sums are whole numbers of scales: exact in any order."""
    operands = make(5, 67, 2048, scales, run.device)
    workspace = make_workspace(run.device)
    workspace.partial.fill_(torch.nan)
    for _ in range(2):
        y = run(call_op, fp8_gemm, Operands, *operands, out_dtype=torch.float32, workspace=workspace, impl="triton")
        assert torch.equal(y.double(), fp8_gemm_ref(*operands))
    assert not workspace.arrived.any() and not workspace.partial.isnan().all()


@pytest.mark.parametrize("scales", ["tensor", "token", "blocks"])
@pytest.mark.parametrize("M, N, K", SHAPES)
def test_a_gpu_without_fp8_multiplies_float16(run, M, N, K, scales):
    operands = make(M, N, K, scales, run.device)
    y = run(as_sm_80, call_op, fp8_gemm, Operands, *operands, out_dtype=torch.float32, impl="triton")
    assert torch.equal(y.double(), fp8_gemm_ref(*operands))


def test_a_gpu_without_fp8_keeps_nan_and_every_code(run):
    """Every e4m3 code but NaN as a weight times 1, and NaN in one token."""
    codes = torch.arange(256, dtype=torch.uint8, device=run.device).view(FP8)
    weight_q = torch.zeros(256, 32, device=run.device).to(FP8)
    weight_q.view(torch.uint8)[:, 5] = torch.where(codes.float().isnan(), 0, codes.view(torch.uint8))
    x_q = torch.ones(3, 32, device=run.device)
    x_q[1, 5] = torch.nan
    ones = torch.ones(1, device=run.device)
    y = run(
        as_sm_80, call_op, fp8_gemm, Operands, x_q.to(FP8), ones, weight_q, ones, out_dtype=torch.float32, impl="triton"
    )
    expected = weight_q[:, 5].float()
    assert torch.equal(y[0], expected) and torch.equal(y[2], expected) and y[1].isnan().all()


def test_an_unknown_architecture_is_refused():
    with pytest.raises(NotImplementedError, match=r"got sm_86, expected one of \['sm_80', 'sm_90', 'sm_100'\]"):
        row(86, 1)


NAMES = ("x_q", "x_scale", "weight_q", "weight_scale")
REFUSED = {
    "e5m2": (dict(x_q=torch.zeros(3, 256).to(torch.float8_e5m2)), TypeError, "got x_q torch.float8_e5m2"),
    "another K": (dict(x_q=torch.zeros(3, 255).to(FP8)), ValueError, r"got x_q \[3, 255\], expected \[rows, 256\]"),
    "blocks and tokens": (dict(weight_scale=torch.ones(1, 2)), ValueError, r"got x_scale \[3\], expected \[3, 2\]"),
    "blocks of another N": (
        dict(x_scale=torch.ones(3, 2), weight_scale=torch.ones(2, 2)),
        ValueError,
        r"got weight_scale \[2, 2\], expected \[1, 2\]",
    ),
    "float64 scale": (dict(x_scale=torch.ones(3).double()), TypeError, "got x_scale torch.float64"),
    "out_dtype": (dict(out_dtype=FP8), NotImplementedError, "got out_dtype torch.float8_e4m3fn, expected one of"),
    "not interpreted": (dict(impl="triton"), RuntimeError, "got cpu tensors with TRITON_INTERPRET not set"),
}


@pytest.mark.parametrize("change, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_operands_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        call_op(fp8_gemm, Operands, **dict(zip(NAMES, make(3, 5, 256), strict=True)) | change)
