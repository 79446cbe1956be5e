"""Hessians, X^T X: each summed over batches of rows in the order given, whatever the number of threads.

fp32   float32 products
bf16   products of bfloat16-rounded inputs, summed in float32: at twice the rate and more if a CPU has them. It is the
       exact Hessian of the inputs of a bfloat16 linear. For white inputs it differs from the other by a damping of
       2**-19 (the variance of a rounding of up to 2**-9 of a value), where GPTQ itself adds 0.01
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor

import torch
from torch import Tensor

from quant.extension import import_kernels

TILE = 512  # columns that one task computes

# (hessian [K, K] float32, batches of rows [n, K] float32, a pool) -> None: adds to the elements on or above the
# diagonal
AddGram = Callable[[Tensor, Sequence[Tensor], Executor], None]


def add_gram_fp32(hessian: Tensor, batches: Sequence[Tensor], pool: Executor) -> None:
    def add_tile(start: int) -> None:
        tile = hessian[start : start + TILE, start:]
        for x in batches:
            tile.addmm_(x[:, start : start + TILE].T, x[:, start:])

    list(pool.map(add_tile, range(0, len(hessian), TILE)))


def add_gram_bf16(hessian: Tensor, batches: Sequence[Tensor], pool: Executor) -> None:
    kernels = import_kernels("cpu_kernels.gram")
    if kernels is None:
        add_gram_fp32(hessian, [x.bfloat16().float() for x in batches], pool)
        return
    for x in batches:
        kernels.add_gram(x.contiguous().numpy(), hessian.numpy())


ADD_GRAM: dict[str, AddGram] = {"fp32": add_gram_fp32, "bf16": add_gram_bf16}


def mirror(hessian: Tensor) -> None:
    """Copies the elements above the diagonal below it."""
    for start in range(0, len(hessian), TILE):
        stop = start + TILE
        hessian[stop:, start:stop] = hessian[start:stop, stop:].T
        square = hessian[start:stop, start:stop]
        square.copy_(torch.triu(square) + torch.triu(square, 1).T)
