"""Exact: activations are multiples of 1/2 below 4 and every d is 2**-6, every dmin 2**-7. With 512 features the largest
sum that can be met, in whatever order, is 512 * 3.5 * 128 * 32 half units of d, below 2**24: float32 holds them all.
Random d are left to the op's problems."""

import numpy as np
import pytest
import torch
from support.gpu_ops import call_op

from gpu_kernels.gemm.gguf_gemm import Operands, gguf_gemm, gguf_gemm_ref
from gpu_kernels.gemm.gguf_gemm_triton import gguf_gemm_triton
from gpu_kernels.gemm.gguf_layout import BLOCK_BYTES, BLOCK_SIZE, pack_gguf
from gpu_kernels.gemm.split_k import make_workspace

types = pytest.mark.parametrize("type_name", BLOCK_BYTES)
D_AT = {"q8_0": {0: 2**-6}, "q4_k": {0: 2**-6, 2: 2**-7}, "q6_k": {208: 2**-6}}
K_OF = {"q8_0": 416, "q4_k": 512, "q6_k": 512}


def make(type_name, M, N, K=None, device="cpu"):
    rng = np.random.default_rng(M + N)
    num_blocks = (K or K_OF[type_name]) // BLOCK_SIZE[type_name]
    data = rng.integers(0, 256, size=(N, num_blocks, BLOCK_BYTES[type_name]), dtype=np.uint8)
    for place, d in D_AT[type_name].items():
        data[:, :, place : place + 2] = np.array([d], dtype=np.float16).view(np.uint8)
    weight = pack_gguf(torch.from_numpy(data.reshape(N, -1)).to(device), type_name)
    x = torch.from_numpy(rng.integers(-7, 8, size=(M, weight.num_features))).half() / 2
    return x.to(device), weight


def check_exact(run, x, weight, bias=None, workspace=None):
    y = torch.full((len(x), weight.num_rows), torch.nan, dtype=torch.float16, device=run.device)
    run(gguf_gemm_triton, Operands(x, weight, bias, workspace), y)
    assert torch.equal(y, gguf_gemm_ref(x, weight, bias).half())


@types
@pytest.mark.parametrize("M, N", [(1, 131), (16, 3), (67, 65)])
def test_products_are_exact(run, M, N, type_name):
    check_exact(run, *make(type_name, M, N, device=run.device))


@types
def test_bias_strides_and_split_in_poison(run, type_name):
    x, weight = make(type_name, 5, 35, device=run.device)
    around = torch.full((2 * x.shape[1], 11), torch.nan, dtype=torch.float16, device=run.device)
    around[::2, 1::2] = x.T
    workspace = make_workspace(run.device)
    workspace.partial.fill_(torch.nan)
    bias = torch.arange(35, device=run.device) / 4
    check_exact(run, around[::2, 1::2].T, weight, bias, workspace)
    assert not workspace.arrived.any()


@types
def test_nan_and_inf_stay_in_their_token(run, type_name):
    x, weight = make(type_name, 4, 35, device=run.device)
    x[2, 70] = torch.nan
    x[1, 70] = torch.inf
    y = torch.zeros(4, 35, dtype=torch.float16, device=run.device)
    run(gguf_gemm_triton, Operands(x, weight), y)
    assert y[2].isnan().all() and not y[1].isfinite().any() and y[[0, 3]].isfinite().all()


@types
def test_public_function(run, type_name):
    x, weight = make(type_name, 3, 35, device=run.device)
    expected = gguf_gemm_ref(x, weight).half()
    for impl in ("triton", "reference"):
        assert torch.equal(run(gguf_gemm, Operands(x, weight), impl=impl), expected)
    assert gguf_gemm(Operands(x[:0], weight)).shape == (0, 35)


X, WEIGHT = make("q4_k", 3, 5)
REFUSED = {
    "float32": (dict(x=X.float()), TypeError, "got x torch.float32, expected torch.float16 or torch.bfloat16"),
    "another K": (dict(x=X[:, :255]), ValueError, r"got x \[3, 255\], expected \[rows, 512\]"),
    "bias of another N": (dict(bias=torch.zeros(3)), ValueError, r"got bias \[3\], expected \[5\]"),
    "not interpreted": (dict(impl="triton"), RuntimeError, "got cpu tensors with TRITON_INTERPRET not set"),
}


@pytest.mark.parametrize("change, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_operands_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        call_op(gguf_gemm, Operands, **dict(x=X, weight=WEIGHT) | change)
