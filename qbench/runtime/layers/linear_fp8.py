"""Linears of 8-bit floats: codes as bfloat16, which holds each exactly, in cpu_kernels' product of bfloat16."""

import importlib

import numpy as np
import torch
from torch import Tensor

from quant.formats import BLOCK_FORMATS, Fp8Format, get_format
from quant.formats.small_floats import E4M3_MAX, E4M3_VALUES
from quant.qtensor import QTensor

PRODUCT = "bf16"  # weights as stored, inputs rounded to bfloat16, sums in float32


class PackedFp8Linear:
    """y = scale of token * scale of row * sum of codes, each product of two codes exact in float32.

    Codes take 2 bytes per weight here, not 1. fp8-w8a16 rounds inputs to bfloat16, as every linear of bfloat16 weights.
    """

    def __init__(self, qtensor: QTensor) -> None:
        fmt = get_format(qtensor.format)
        assert isinstance(fmt, Fp8Format) and not fmt.by_block
        self.format, self.shared = fmt, qtensor.shared
        if fmt.static_inputs:
            fmt.input_scale(np.empty((0, qtensor.shape[1]), dtype=np.float32), qtensor.shared)
        values = E4M3_VALUES[qtensor.parts["weight"]]
        blocks = BLOCK_FORMATS[PRODUCT].quantize_ref(values).parts["blocks"]
        kernels = importlib.import_module("cpu_kernels")
        self.packed = kernels.PackedLinear(PRODUCT, {"blocks": blocks}, qtensor.shape, False)
        self.scale = torch.from_numpy(qtensor.parts["weight_scale"])  # [N, 1]
        self.size_bytes = self.packed.nbytes + self.scale.nbytes
        self.name = f"cpu-{fmt.name}[{PRODUCT} of codes, {self.packed.choice(1)[0]}]"

    def __call__(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])  # [M, K]
        scale = self.scale.T
        if self.format.inputs != "none":
            of_inputs = torch.from_numpy(self.format.input_scale(tokens.numpy(), self.shared))  # [M, 1] or [1, 1]
            largest = float(E4M3_MAX)
            tokens = (tokens / of_inputs).clamp(-largest, largest).to(torch.float8_e4m3fn).float()
            scale = scale * of_inputs
        y = torch.from_numpy(self.packed.matmul(tokens.contiguous().numpy()))  # [M, N]
        return (y * scale).view(*x.shape[:-1], -1)

    def rows(self, index: np.ndarray) -> Tensor:
        codes = torch.from_numpy(self.packed.rows(np.ascontiguousarray(index)))
        return codes * self.scale[torch.from_numpy(index)]


def packed_fp8_bytes(format_name: str, shape: tuple[int, ...], stored_bytes: int) -> int:
    """Bytes of PackedFp8Linear"""
    return importlib.import_module("cpu_kernels").packed_linear_bytes(PRODUCT, shape) + 4 * shape[0]
