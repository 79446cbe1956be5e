"""The product of one token in Triton, without tensor cores; the maths is in dense_gemv.py.

Split    one program BLOCK_N rows of the weight.
Program  walks its rows in steps of BLOCK_K features with loads of 16 bytes per thread. Each thread adds the products of
         its own features in float32; the sums of threads are added once, at the end.
Cost     compiled for sm_90 a weight takes 4 to 5 instructions, and the memory leaves time for 13: an H200 reads 9
         weights per cycle and multiprocessor, and issues 128 lanes. For 4-bit weights the same way takes 7 to 9
         instructions of 3.4, and the tensor cores' way 3.5 (weight_only_configs.py), so those keep theirs.
"""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.gemm.dense_gemv import Operands
from gpu_kernels.launch import Launch
from gpu_kernels.tuned import Tuned


@dataclass(frozen=True, slots=True)
class Config:
    """One program computes block_n channels in steps of block_k input features."""

    block_n: int
    block_k: int
    num_warps: int

    def __str__(self) -> str:
        return f"{self.block_n}x{self.block_k}-w{self.num_warps}"


# 64 bytes per thread are under way in a program: 8 KB, of the 23 KB that a multiprocessor of an H200 needs.
CANDIDATES = [Config(4, 512, 4), Config(8, 512, 4), Config(2, 1024, 4), Config(4, 1024, 4), Config(2, 512, 2)]


def dense_gemv_triton(operands: Operands, y: Tensor, config: Config | None = None) -> None:
    """Writes y [1, N], with the tile shape that was chosen."""
    TUNED.run(operands, y, config=config)


def row_of(operands: Operands, arch: int) -> tuple[str, list[Config]]:
    """(name, candidates)"""
    return "one token", CANDIDATES


def launches(operands: Operands, y: Tensor, config: Config, arch: int) -> list[Launch]:
    """One program per BLOCK_N channels."""
    N, K = operands.weight.shape
    arguments = {
        "x_ptr": operands.x,
        "weight_ptr": operands.weight,
        "bias_ptr": operands.bias,
        "y_ptr": y,
        "N": N,
        "K": K,
        "stride_wn": operands.weight.stride(0),
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
        "EVEN_K": K % config.block_k == 0,
    }
    return [Launch(dense_gemv_kernel, (triton.cdiv(N, config.block_n),), arguments, config.num_warps)]


@triton.jit
def dense_gemv_kernel(
    # pointers
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    # sizes
    N,
    K,
    # strides, in elements
    stride_wn,
    # tile shape
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    o_n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    o_k = tl.arange(0, BLOCK_K)
    p_w = weight_ptr + tl.minimum(o_n, N - 1)[:, None] * stride_wn + o_k[None, :]
    b_acc = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
    for i_k in range(0, K, BLOCK_K):
        if EVEN_K:
            b_w, b_x = tl.load(p_w), tl.load(x_ptr + i_k + o_k)  # [BLOCK_N, BLOCK_K], [BLOCK_K]
        else:
            b_w = tl.load(p_w, mask=(i_k + o_k < K)[None, :], other=0.0)
            b_x = tl.load(x_ptr + i_k + o_k, mask=i_k + o_k < K, other=0.0)
        b_acc = tl.fma(b_w.to(tl.float32), tl.broadcast_to(b_x.to(tl.float32)[None, :], (BLOCK_N, BLOCK_K)), b_acc)
        p_w += BLOCK_K
    b_y = tl.sum(b_acc, axis=1)  # [BLOCK_N]
    if bias_ptr is not None:
        b_y += tl.load(bias_ptr + o_n, mask=o_n < N, other=0.0).to(tl.float32)
    tl.store(y_ptr + o_n, b_y.to(y_ptr.dtype.element_ty), mask=o_n < N)


TUNED = Tuned("dense_gemv", dense_gemv_kernel, row_of, launches)
