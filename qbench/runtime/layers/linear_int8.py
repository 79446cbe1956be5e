"""LLM.int8() by cpu_kernels."""

import importlib

import numpy as np
import torch
from torch import Tensor

from quant.formats.llm_int8 import NO_FEATURES
from quant.qtensor import QTensor


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
