"""Linears of 4-bit weights and inputs: both as int8 codes, in cpu_kernels' product of W8A8."""

import importlib

import numpy as np
import torch
from torch import Tensor

from quant.formats import W4A4Format, get_format
from quant.qtensor import QTensor

PRODUCT = "w8a8-astatic"  # a static scale of 1 leaves whole numbers as they are


class PackedW4A4Linear:
    """y = scale of token * scale of row * sum of codes, each product and sum exact in integers.

    Codes take 8 bits per weight here, not 4.
    """

    def __init__(self, qtensor: QTensor) -> None:
        fmt = get_format(qtensor.format)
        assert isinstance(fmt, W4A4Format)
        self.format = fmt
        q, scale, _, _ = fmt.unpack(qtensor)
        parts = {
            "weight": np.ascontiguousarray(q),
            "weight_scale": scale.astype(np.float32),
            "input_scale": np.ones(1, dtype=np.float32),
        }
        self.packed = importlib.import_module("cpu_kernels").PackedLinear(PRODUCT, parts, qtensor.shape, False)
        self.size_bytes = self.packed.nbytes
        self.name = f"cpu-{fmt.name}[int8 of codes, {self.packed.choice(1)[0]}]"

    def __call__(self, x: Tensor) -> Tensor:
        codes, scale = self.format.input_codes(x.reshape(-1, x.shape[-1]).numpy())  # [M, K], [M, 1]
        y = torch.from_numpy(self.packed.matmul(np.ascontiguousarray(codes)) * scale)  # [M, N]
        return y.view(*x.shape[:-1], -1)

    def rows(self, index: np.ndarray) -> Tensor:
        return torch.from_numpy(self.packed.rows(np.ascontiguousarray(index)))


def packed_w4a4_bytes(format_name: str, shape: tuple[int, ...], stored_bytes: int) -> int:
    """Bytes of PackedW4A4Linear"""
    return importlib.import_module("cpu_kernels").packed_linear_bytes(PRODUCT, shape)
