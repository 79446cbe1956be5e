"""Weights of any format as a GPU's products take them: one table from a format to a layout, floats for the rest."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from gpu_kernels.decode.linears import (
    CodeLinear,
    CodeWeight,
    DenseLinear,
    Linear,
    LlmInt8Linear,
    PackedLinear,
    Stack,
    join_rows,
)
from gpu_kernels.gemm.fp8_gemm import BLOCK
from gpu_kernels.gemm.gguf_layout import BLOCK_BYTES, KQuantWeight, pack_gguf
from gpu_kernels.gemm.split_k import make_workspace
from gpu_kernels.gemm.words_layout import BITS, GROUP_SIZES, WordsWeight, pack_words
from qbench.runtime.device.place import Place
from qbench.runtime.layers.fused import runs_of_equal_format
from qbench.runtime.layers.linear import as_tensor
from quant.errors import InputError
from quant.formats import Int8Format, IntGroupFormat, LlmInt8Format, W4A4Format, dequantize, get_format
from quant.formats.fp8 import Fp8Format
from quant.formats.int8 import QMAX
from quant.formats.llm_int8 import NO_FEATURES
from quant.present import present
from quant.qtensor import QTensor, concat_rows

FLOAT_TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
# Packed at a time: taken apart they are 16 times their size, which would count as the peak of loading.
PIECE_WEIGHTS = 1 << 26


class DeviceWeights:
    """Builds a model's linears and vectors on a device.

    read          name -> that tensor; each is asked for once
    impls         linear -> its implementation, in the order in which they were built
    weight_bytes  that all hold
    """

    def __init__(self, read: Callable[[str], QTensor], place: Place) -> None:
        self.read, self.place = read, place
        self.impls: dict[str, str] = {}
        self.weight_bytes = 0
        self.workspace = make_workspace(place.torch_name)

    def vector(self, name: str) -> Tensor:
        """Floats of the activations' type."""
        values = as_tensor(dequantize(self.read(name))).to(self.place.torch_name, self.place.dtype)
        self.weight_bytes += values.nbytes
        return values

    def stack(self, names: Sequence[str], biases: Sequence[Tensor | None]) -> Stack:
        """The linears of these names (without ".weight"), which read one input; biases of each [N]."""
        parts, start = [], 0
        for run in joined_runs([self.read(f"{name}.weight") for name in names]):
            counts = [qtensor.shape[0] for qtensor in run]
            linear, impl = self.linear(concat_rows(run), self._bias(biases[start : start + len(run)], counts))
            self.impls |= dict.fromkeys(names[start : start + len(run)], impl)
            parts.append((linear, counts))
            start += len(run)
        return Stack(parts)

    def linear(self, qtensor: QTensor, bias: Tensor | None = None) -> tuple[Linear, str]:
        """(the product, the name of its implementation)"""
        linear, note = self._built(qtensor, bias)
        self.weight_bytes += linear.size_bytes
        kernel = f"{self.place.float_name}[torch]" if isinstance(linear, DenseLinear) else linear.name
        return linear, f"{self.place.name}-{kernel}{note}"

    def _built(self, qtensor: QTensor, bias: Tensor | None) -> tuple[Linear, str]:
        fmt, where, dtype = get_format(qtensor.format), self.place.torch_name, self.place.dtype
        if fmt.name in FLOAT_TYPES:
            data = as_tensor(qtensor.parts["blocks"]).to(where)
            return DenseLinear(data.view(FLOAT_TYPES[fmt.name]).to(dtype), bias), ""
        if fmt.name in BLOCK_BYTES:
            pieces = self._pieces(qtensor, lambda part: pack_gguf(self._moved(part.parts["blocks"]), fmt.name))
            return PackedLinear(join_rows(pieces), dtype, bias, self.workspace, is_gguf=True), ""
        if isinstance(fmt, W4A4Format):
            raise InputError(f"{fmt.name} has no product on a GPU, which would have to round inputs; use --device cpu")
        if isinstance(fmt, IntGroupFormat) and fmt.bits in BITS and fmt.group_size in (None, *GROUP_SIZES):
            pieces = self._pieces(qtensor, lambda part: self._words(fmt, part))
            return PackedLinear(join_rows(pieces), dtype, bias, self.workspace), ""
        if isinstance(fmt, Int8Format) or (isinstance(fmt, Fp8Format) and fmt.inputs != "none"):
            return self._coded(fmt, qtensor, bias), ""
        if isinstance(fmt, LlmInt8Format):
            return self._llm_int8(qtensor, bias), ""
        weight = as_tensor(dequantize(qtensor)).to(where, dtype)
        return DenseLinear(weight, bias), f" of {fmt.name}"

    def _coded(self, fmt: Int8Format | Fp8Format, qtensor: QTensor, bias: Tensor | None) -> CodeLinear:
        """Inputs of codes, in int8 or FP8; a scale per block comes once for its 128 rows."""
        codes, scale = (self._moved(qtensor.parts[name]) for name in ("weight", "weight_scale"))
        given = qtensor.shared.get("input_scale")
        static = None if given is None else self._moved(given).flatten()
        if isinstance(fmt, Fp8Format):
            codes = codes.view(torch.float8_e4m3fn)
        scale = scale[::BLOCK].contiguous() if fmt.inputs == "per_group" else scale.flatten()
        weight = CodeWeight(codes, scale, self.place.dtype, bias, self.workspace)
        return CodeLinear(weight, inputs=fmt.inputs, input_scale=static)

    def _llm_int8(self, qtensor: QTensor, bias: Tensor | None) -> LlmInt8Linear:
        codes, absmax = (self._moved(qtensor.parts[name]) for name in ("weight", "SCB"))
        features = qtensor.shared.get("outlier_features", NO_FEATURES)
        kept = qtensor.parts.get("outlier_weight", np.empty((qtensor.shape[0], 0), dtype=np.float16))
        known = {"known": self._moved(features.astype(np.int64)), "known_weight": self._moved(kept)}
        return LlmInt8Linear(CodeWeight(codes, absmax / QMAX, self.place.dtype, bias, self.workspace), **known)

    def _words(self, fmt: IntGroupFormat, qtensor: QTensor) -> WordsWeight:
        packed = self._moved(qtensor.parts["weight_packed"])  # [N, words] int32, the first code lowest
        data = packed.view(torch.uint8)  # [N, 4 words]
        codes = [data >> shift & (1 << fmt.bits) - 1 for shift in range(0, 8, fmt.bits)]
        q = torch.stack(codes, dim=2).flatten(1)[:, : qtensor.shape[1]]
        q = (q.to(torch.int16) - (1 << fmt.bits - 1)).to(torch.int8)  # [N, K]
        parts = [qtensor.parts["weight_scale"], qtensor.parts.get("weight_zero_point"), qtensor.shared.get("g_idx")]
        scale, zero_point, g_idx = (None if part is None else self._moved(part) for part in parts)
        return pack_words(q, present(scale), zero_point, g_idx, bits=fmt.bits)

    def _pieces(
        self, qtensor: QTensor, pack: Callable[[QTensor], WordsWeight | KQuantWeight]
    ) -> list[WordsWeight | KQuantWeight]:
        num_rows, row_size = qtensor.shape
        step = max(1, PIECE_WEIGHTS // row_size)
        ranges = [slice(start, min(start + step, num_rows)) for start in range(0, num_rows, step)]
        return [
            pack(
                QTensor(
                    qtensor.format,
                    (rows.stop - rows.start, row_size),
                    {name: array[rows] for name, array in qtensor.parts.items()},
                    qtensor.shared,
                )
            )
            for rows in ranges
        ]

    def _moved(self, array: np.ndarray) -> Tensor:
        return as_tensor(array).to(self.place.torch_name)

    def _bias(self, biases: Sequence[Tensor | None], counts: Sequence[int]) -> Tensor | None:
        """[sum of counts], zeros for linears without a bias; None if no linear has one"""
        if all(bias is None for bias in biases):
            return None
        like = {"dtype": self.place.dtype, "device": self.place.torch_name}
        parts = (torch.zeros(n, **like) if bias is None else bias for bias, n in zip(biases, counts, strict=True))
        return torch.cat(list(parts))


def joined_runs(qtensors: Sequence[QTensor]) -> list[list[QTensor]]:
    """Neighbours that may become one weight: those of one format, if no block of scales would cross a border."""
    parts: list[list[QTensor]] = []
    for run in runs_of_equal_format(qtensors):
        parts += [run] if _borders_fit(run) else [[qtensor] for qtensor in run]
    return parts


def _borders_fit(run: Sequence[QTensor]) -> bool:
    fmt = get_format(run[0].format)
    in_blocks = isinstance(fmt, Fp8Format) and fmt.by_block
    return not in_blocks or all(qtensor.shape[0] % BLOCK == 0 for qtensor in run[:-1])
