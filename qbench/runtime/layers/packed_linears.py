"""Linears of integer codes and small floats in cpu_kernels' products: LLM.int8(), W4A4 and FP8."""

import importlib

import numpy as np
import torch
from torch import Tensor

from quant.formats import BLOCK_FORMATS, Fp8Format, W4A4Format, get_format
from quant.formats.llm_int8 import NO_FEATURES
from quant.formats.small_floats import E4M3_MAX, E4M3_VALUES
from quant.qtensor import QTensor

W4A4_PRODUCT = "w8a8-astatic"  # a static scale of 1 leaves whole numbers as they are
FP8_PRODUCT = "bf16"  # weights as stored, inputs rounded to bfloat16, sums in float32


class PackedLlmInt8Linear:
    """cpu_kernels' product: int8 for features below the threshold in all tokens of a call, float32 for the others.

    Features that calibration knew as outliers are among the others always, with float16 weights of their own.

    source   Dettmers et al. 2022, arXiv:2208.07339, eq. 8; cpu_kernels.linear_int8 has the order of roundings
    """

    def __init__(self, qtensor: QTensor) -> None:
        kernels = importlib.import_module("cpu_kernels")
        features = np.ascontiguousarray(qtensor.shared.get("outlier_features", NO_FEATURES), dtype=np.int32)
        no_weight = np.empty((qtensor.shape[0], 0), dtype=np.float16)
        parts = (qtensor.parts["weight"], qtensor.parts["SCB"], qtensor.parts.get("outlier_weight", no_weight))
        self.packed = kernels.PackedLlmInt8(*map(np.ascontiguousarray, parts), features)
        self.size_bytes = self.packed.nbytes
        self.name = f"cpu-llm-int8[{kernels.chosen_isa('linear_llm_int8')}]"

    def __call__(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1]).contiguous()  # [M, K]
        y = torch.from_numpy(self.packed.matmul(tokens.numpy()))  # [M, N]
        return y.view(*x.shape[:-1], -1)

    def rows(self, index: np.ndarray) -> Tensor:
        return torch.from_numpy(self.packed.rows(np.ascontiguousarray(index)))


def packed_llm_int8_bytes(format_name: str, shape: tuple[int, ...], stored_bytes: int) -> int:
    """Bytes of PackedLlmInt8: rows in panels of 16 of 64 features, and the known features with their weights."""
    num_rows, row_size = shape
    stored_features = stored_bytes - num_rows * (row_size + 4)
    num_features = stored_features // (2 * num_rows + 4)  # their float16 weights and int32 numbers
    rows, columns = -(-num_rows // 16) * 16, -(-row_size // 64) * 64
    return rows * (columns + 4 + 2 * num_features) + 4 * num_features + row_size


class PackedW4A4Linear:
    """y = scale of token * scale of row * sum of codes, each product and sum exact in integers.

    Codes take 8 bits per weight here, not 4: both sides are int8 codes in cpu_kernels' product of W8A8.
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
        self.packed = importlib.import_module("cpu_kernels").PackedLinear(W4A4_PRODUCT, parts, qtensor.shape, False)
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
    return importlib.import_module("cpu_kernels").packed_linear_bytes(W4A4_PRODUCT, shape)


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
        blocks = BLOCK_FORMATS[FP8_PRODUCT].quantize_ref(values).parts["blocks"]
        kernels = importlib.import_module("cpu_kernels")
        self.packed = kernels.PackedLinear(FP8_PRODUCT, {"blocks": blocks}, qtensor.shape, False)
        self.scale = torch.from_numpy(qtensor.parts["weight_scale"])  # [N, 1]
        self.size_bytes = self.packed.nbytes + self.scale.nbytes
        self.name = f"cpu-{fmt.name}[{FP8_PRODUCT} of codes, {self.packed.choice(1)[0]}]"

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
    return importlib.import_module("cpu_kernels").packed_linear_bytes(FP8_PRODUCT, shape) + 4 * shape[0]
