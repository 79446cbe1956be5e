"""The layout of AutoGPTQ and GPTQModel: codes packed down the input features, zero points along the outputs.

part      shape                        K inputs, N outputs, G groups
qweight   [K * bits / 32, N] int32     code + 2**(bits - 1) of input k, from bit k * bits of column n's stream
qzeros    [G, N * bits / 32] int32     zero point + 2**(bits - 1) of output n, from bit n * bits; in v1 less 1
scales    [G, N] float16
g_idx     [K] int32                    group of each input

v1 is the version that everybody reads, and the one that is written if everything is symmetric. An asymmetric zero point
may be the smallest, which has no place in v1: GPTQModel takes the 1 from whole words and lets it be borrowed from the
neighbour, others let the code wrap round. So asymmetric tensors are written in v2, and v1 is read as GPTQModel reads
it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from quant.artifacts.layouts.base import Layout, Part, StoredModule, check_holds, tensor_info
from quant.artifacts.layouts.gptq_config import V1, GptqConfig, GptqDocument
from quant.artifacts.layouts.int_parts import SCALE_DTYPES, half_scale, int_group_format, natural_groups, shared_groups
from quant.errors import InputError
from quant.formats import ActivationFormat, Format, IntGroupFormat, get_format
from quant.formats.bits import pack_int32, packed_words, unpack_int32
from quant.present import present
from quant.qtensor import QTensor
from quant.source import TensorInfo

WORD_BITS = 32


class GptqLayout(Layout):
    quant_method = "gptq"
    formats = (IntGroupFormat,)

    def __init__(self, config: GptqConfig) -> None:
        self._config = config

    @classmethod
    def holds(cls, fmt: Format) -> bool:
        return super().holds(fmt) and not isinstance(fmt, ActivationFormat)

    @classmethod
    def of_tensors(cls, linears: Mapping[str, TensorInfo]) -> "GptqLayout":
        check_holds(cls, linears)
        for name, info in linears.items():
            fmt = get_format(info.format)
            if isinstance(fmt, IntGroupFormat) and any(size * fmt.bits % WORD_BITS for size in info.shape):
                raise InputError(
                    f"{name}: the gptq layout fills words of {WORD_BITS} bits along both axes, "
                    f"and {list(info.shape)} of {fmt.bits} bits does not; use packing compressed-tensors"
                )
        return cls(GptqConfig.write(linears))

    @classmethod
    def of_config(cls, config: Mapping[str, Any], where: str) -> "GptqLayout":
        return cls(GptqConfig.read(config, where))

    def config(self) -> GptqDocument:
        return present(self._config.document)

    def parts(self, info: TensorInfo) -> tuple[Part, ...]:
        fmt = int_group_format(info.format)
        num_rows, row_size = info.shape
        num_groups = fmt.num_groups(row_size)
        return (
            Part("qweight", "I32", (packed_words(row_size, fmt.bits), num_rows)),
            Part("qzeros", "I32", (num_groups, packed_words(num_rows, fmt.bits))),
            Part("scales", "F16", (num_groups, num_rows), read_too=SCALE_DTYPES),
            Part("g_idx", "I32", (row_size,)),
        )

    def pack(self, qtensor: QTensor) -> dict[str, np.ndarray]:
        fmt = int_group_format(qtensor.format)
        _, scale, zero_point, g_idx = fmt.unpack(qtensor)
        # Both formats add 2**(bits - 1) and fill the words from the lowest bit, so the words are the same.
        return {
            "qweight": qtensor.parts["weight_packed"].T,
            "qzeros": pack_int32(np.ascontiguousarray(zero_point.T) - np.int8(self._config.version == V1), fmt.bits),
            "scales": scale.T,
            "g_idx": natural_groups(fmt, qtensor.shape[1]) if g_idx is None else g_idx,
        }

    def info(self, module: StoredModule, shape: tuple[int, ...]) -> TensorInfo | None:
        if "qweight" not in module.parts:
            return None
        fmt = self._config.format_of(module.name)
        module.check_matrix(fmt, shape)
        module.check(self.parts(tensor_info(fmt, shape)))
        return tensor_info(fmt, shape, shared_groups(fmt, shape[1], module, "g_idx"))

    def claims(self, module: StoredModule, info: TensorInfo) -> set[str]:
        """The parts, and a bias of zeros, which AutoGPTQ gave every linear."""
        bias = {"bias"} if "bias" in module.parts and not module.read("bias").any() else set()
        return super().claims(module, info) | bias

    def unpack(self, module: StoredModule, info: TensorInfo) -> QTensor:
        fmt = int_group_format(info.format)
        zero_point = self._read_zero_point(module, fmt, info.shape[0])
        parts = {
            "weight_packed": np.ascontiguousarray(module.read("qweight").T),
            "weight_scale": half_scale(module.read("scales").T, module, "scales"),
        }
        if not fmt.symmetric:
            parts["weight_zero_point"] = zero_point
        elif zero_point.any():
            raise InputError(f"{module.folder}: {module.name} has zero points, and quantization_config says sym")
        shared = {"g_idx": module.read("g_idx").astype(np.int32)} if info.has_shared("g_idx") else {}
        return QTensor(info.format, info.shape, parts, shared)

    def _read_zero_point(self, module: StoredModule, fmt: IntGroupFormat, num_rows: int) -> np.ndarray:
        """[N, G] int8"""
        words = module.read("qzeros")
        is_v1 = self._config.version == V1
        if is_v1 and WORD_BITS % fmt.bits == 0:
            ones = sum(1 << bit for bit in range(0, WORD_BITS, fmt.bits))
            words = (words.view(np.uint32) + np.uint32(ones)).view(np.int32)
        zero_point = unpack_int32(words, fmt.bits, num_rows)  # [G, N]
        if is_v1 and WORD_BITS % fmt.bits:  # codes straddle words: the 1 is added to each, the largest wraps round
            zero_point = np.where(zero_point == fmt.qmax, fmt.qmin, zero_point + 1).astype(np.int8)
        return np.ascontiguousarray(zero_point.T)
