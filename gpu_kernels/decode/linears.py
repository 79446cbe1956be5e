"""A decoder's products by the layout of their weights: one class per kernel, called in the same way.

x is [M, K] in 16 bits, or its codes with x_scale [M] if the step before quantized it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_kernels.dispatch import implementation_name
from gpu_kernels.fused.quantize_per_token import quantize_per_token
from gpu_kernels.fused.row_codes import QMAX, SMALLEST_SCALE
from gpu_kernels.gemm.dense_gemv import Operands as GemvOperands
from gpu_kernels.gemm.dense_gemv import dense_gemv
from gpu_kernels.gemm.fp8_gemm import BLOCK, fp8_gemm
from gpu_kernels.gemm.fp8_gemm import Operands as Fp8Operands
from gpu_kernels.gemm.gguf_gemm import Operands as GgufOperands
from gpu_kernels.gemm.gguf_gemm import dequantize_ref, gguf_gemm
from gpu_kernels.gemm.gguf_layout import KQuantWeight
from gpu_kernels.gemm.llm_int8_gemm import Operands, llm_int8_gemm
from gpu_kernels.gemm.split_k import Workspace
from gpu_kernels.gemm.w8a8_gemm import Operands as CodeOperands
from gpu_kernels.gemm.w8a8_gemm import w8a8_gemm
from gpu_kernels.gemm.weight_only_gemm import Operands as WordsOperands
from gpu_kernels.gemm.weight_only_gemm import w4a16_gemm, w8a16_gemm
from gpu_kernels.gemm.words_layout import WordsWeight

_PRODUCTS = {"gguf_gemm": gguf_gemm, "w4a16_gemm": w4a16_gemm, "w8a16_gemm": w8a16_gemm}


class Linear(Protocol):
    """y [M, N] = x @ weight.T + bias.

    name        the op and its implementation
    num_rows    N
    size_bytes  memory that it holds
    codes       "int8" or "fp8": the codes of x, with one scale per token, that the step before may make; None: as x
    """

    name: str
    num_rows: int
    size_bytes: int
    codes: str | None

    def __call__(self, x: Tensor, x_scale: Tensor | None = None) -> Tensor: ...


def named(op: str, tensor: Tensor) -> str:
    """ "w8a8_gemm[triton]": the op, and its implementation on the tensor's device"""
    return f"{op}[{implementation_name(op, tensor.device.type)}]"


def size_bytes(*tensors: Tensor | None) -> int:
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


class DenseLinear:
    """torch's own product, of weight [N, K] in x's type; if `has_gemv`, one token takes dense_gemv."""

    codes: str | None = None
    name = "torch"

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, has_gemv: bool = False) -> None:
        self.weight, self.bias, self.has_gemv = weight, bias, has_gemv
        self.num_rows, self.size_bytes = len(weight), size_bytes(weight, bias)

    def __call__(self, x: Tensor, x_scale: Tensor | None = None) -> Tensor:
        if self.has_gemv and len(x) == 1:
            return dense_gemv(GemvOperands(x, self.weight, self.bias))
        return F.linear(x, self.weight, self.bias)

    def rows(self, index: Tensor) -> Tensor:
        """[n, K] of the weight"""
        return self.weight[index]


class PackedLinear:
    """Weights of 4 and 8 bits in the layouts of w4a16_gemm and w8a16_gemm, or of gguf_gemm where `is_gguf`.

    workspace  of all products that run one after the other
    """

    codes: str | None = None

    def __init__(
        self,
        weight: WordsWeight | KQuantWeight,
        dtype: torch.dtype,
        bias: Tensor | None = None,
        workspace: Workspace | None = None,
        *,
        is_gguf: bool = False,
    ) -> None:
        self.weight, self.dtype, self.bias, self.workspace = weight, dtype, bias, workspace
        op = "gguf_gemm" if is_gguf or isinstance(weight, KQuantWeight) else f"w{weight.bits}a16_gemm"
        self._product: Callable[..., Tensor] = _PRODUCTS[op]
        self._operands: Callable[..., Any] = GgufOperands if op == "gguf_gemm" else WordsOperands
        self.name, self.num_rows = named(op, weight.codes), weight.num_rows
        self.size_bytes = size_bytes(*_parts(weight).values(), getattr(weight, "order", None), bias)

    def __call__(self, x: Tensor, x_scale: Tensor | None = None) -> Tensor:
        return self._product(self._operands(x, self.weight, self.bias, self.workspace))

    def rows(self, index: Tensor) -> Tensor:
        """[n, K] of the weight, in x's type"""
        return dequantize_ref(select_rows(self.weight, index)).to(self.dtype)


@dataclass(frozen=True, slots=True)
class CodeWeight:
    """weight_q [N, K] int8 or float8_e4m3fn, and weight_scale [N] or [1] float32, or one per block of 128 by 128.

    dtype      y's
    workspace  of all products that run one after the other
    """

    weight_q: Tensor
    weight_scale: Tensor
    dtype: torch.dtype
    bias: Tensor | None = None
    workspace: Workspace | None = None


class CodeLinear:
    """Codes times codes: W8A8 in int8 or FP8.

    inputs       "per_token", "per_group" (one scale for 128 features of a token, of FP8 in blocks), "per_tensor" (one
                 scale for all tokens of a call) or "static"
    input_scale  [1] float32, of static inputs
    """

    def __init__(self, weight: CodeWeight, *, inputs: str = "per_token", input_scale: Tensor | None = None) -> None:
        self.weight, self.inputs, self.input_scale = weight, inputs, input_scale
        self.kind = "int8" if weight.weight_q.dtype == torch.int8 else "fp8"
        self.codes = self.kind if inputs == "per_token" else None
        op = "w8a8_gemm" if self.kind == "int8" else "fp8_gemm"
        self.name, self.num_rows = named(op, weight.weight_q), len(weight.weight_q)
        self.size_bytes = size_bytes(weight.weight_q, weight.weight_scale, weight.bias, input_scale)

    def __call__(self, x: Tensor, x_scale: Tensor | None = None) -> Tensor:
        if x_scale is None:
            x, x_scale = self._quantized(x)
        weight = self.weight
        options = {"bias": weight.bias, "out_dtype": weight.dtype, "workspace": weight.workspace}
        codes = x, x_scale, weight.weight_q, weight.weight_scale
        if self.kind == "fp8":
            return fp8_gemm(Fp8Operands(*codes, **options))
        return w8a8_gemm(CodeOperands(*codes, **options))

    def _quantized(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(x_q [M, K], x_scale [M], [1] or [M, K / 128] float32)"""
        if self.inputs == "per_token":
            return quantize_per_token(x, self.kind)
        if self.inputs == "per_group":
            x_q, x_scale = quantize_per_token(x.reshape(-1, BLOCK), self.kind)
            return x_q.view(x.shape), x_scale.view(len(x), -1)
        scale = self.input_scale
        if scale is None:
            scale = (x.abs().amax().float() / QMAX[self.kind]).clamp(min=SMALLEST_SCALE).reshape(1)
        x = x.float() / scale
        if self.kind == "int8":
            return x.round().clamp(-128, 127).to(torch.int8), scale
        return x.clamp(-QMAX["fp8"], QMAX["fp8"]).to(torch.float8_e4m3fn), scale


class Stack:
    """Linears of one input side by side, those of one layout as one product.

    parts    (product, rows of each of its weights), in the order of the outputs
    codes    as of its products
    """

    def __init__(self, parts: Sequence[tuple[Linear, Sequence[int]]]) -> None:
        self.parts = parts
        kinds = {linear.codes for linear, _ in parts}
        self.codes = kinds.pop() if len(kinds) == 1 else None

    @property
    def size_bytes(self) -> int:
        return sum(linear.size_bytes for linear, _ in self.parts)

    @property
    def names(self) -> list[str]:
        """The implementation of each output."""
        return [linear.name for linear, counts in self.parts for _ in counts]

    def __call__(self, x: Tensor, x_scale: Tensor | None = None) -> tuple[Tensor, ...]:
        """One y [M, rows] for each weight"""
        return tuple(y for linear, counts in self.parts for y in linear(x, x_scale).split(list(counts), dim=1))


def select_rows(weight: WordsWeight | KQuantWeight, index: Tensor) -> WordsWeight | KQuantWeight:
    """The weight of these rows alone. index [n] int64"""
    return replace(weight, **{name: None if part is None else part[:, index] for name, part in _parts(weight).items()})


def join_rows(weights: Sequence[WordsWeight | KQuantWeight]) -> WordsWeight | KQuantWeight:
    """One weight of the rows of all, of one layout and row size, one below the other."""
    first = weights[0]
    if len(weights) == 1:
        return first
    each = [_parts(weight) for weight in weights]
    return replace(first, **{name: _join([one[name] for one in each]) for name in each[0]})


def _join(parts: Sequence[Tensor | None]) -> Tensor | None:
    """The parts along their second axis; None if no weight has the part. raises ValueError if only some have it"""
    found = [part for part in parts if part is not None]
    if found and len(found) != len(parts):
        raise ValueError(f"join_rows: got {len(found)} of {len(parts)} weights with a part, expected one layout")
    return torch.cat(found, 1) if found else None


def _parts(weight: WordsWeight | KQuantWeight) -> dict[str, Tensor | None]:
    """The arrays whose second axis is the weight's rows."""
    names = ("codes", "high", "scales", "minima", "d", "dmin") if isinstance(weight, KQuantWeight) else None
    return {name: getattr(weight, name) for name in names or ("codes", "scale", "zero_point")}


THRESHOLD = 6.0
# Outlier features that a call may have in addition to the known ones. Dettmers et al. 2022, section 4.1: at most seven
# in models of up to 13 billion weights; the first token of a text may have dozens. If there are more, the loudest are
# kept, and the others are int8 like the rest, which costs their tokens a coarser scale.
MOST_FEATURES = 32


class LlmInt8Linear:
    """weight [N, K] = weight_q * weight_scale, and for outlier features the weights given for those that are known.

    A feature is an outlier if some token of the call takes it to THRESHOLD. How many there are is known on the GPU
    alone, so the loudest MOST_FEATURES are read, and the weights of those that are no outliers count as 0.

    known           [F] int64 features that are outliers always, with known_weight [N, F]; F may be 0
    source          Dettmers et al. 2022, LLM.int8(), arXiv:2208.07339, section 3.2
    """

    codes: str | None = None

    def __init__(self, weight: CodeWeight, *, known: Tensor, known_weight: Tensor) -> None:
        self.weight, self.known, self.known_weight = weight, known, known_weight.to(weight.dtype)
        self.name, self.num_rows = named("llm_int8_gemm", weight.weight_q), len(weight.weight_q)
        self.size_bytes = size_bytes(weight.weight_q, weight.weight_scale, weight.bias, known, self.known_weight)

    def __call__(self, x: Tensor, x_scale: Tensor | None = None) -> Tensor:
        size = x.abs()
        loudest, features = size.index_fill(1, self.known, 0.0).amax(0).topk(min(MOST_FEATURES, x.shape[1]))  # [F]
        is_outlier = loudest >= THRESHOLD
        is_float = torch.zeros_like(size[0], dtype=torch.bool).scatter(0, features, is_outlier)  # [K]
        # An outlier feature's smaller values count for absmax, and have no code.
        inlier = torch.where(is_float & (size >= THRESHOLD), 0, x).index_fill(1, self.known, 0.0)
        x_scale = (inlier.abs().amax(1).float() / 127).clamp(min=2.0**-126)  # [M]
        x_q = torch.where(is_float, 0, inlier.float() / x_scale[:, None]).round().to(torch.int8)
        weight = self.weight
        found = weight.weight_q[:, features] * weight.weight_scale[:, None] * is_outlier  # [N, F]
        outlier_weight = torch.cat([self.known_weight, found.to(weight.dtype)], 1)
        outlier_features = torch.cat([self.known, features]).to(torch.int32)
        codes, outliers = (x_q, x_scale, weight.weight_q, weight.weight_scale), (x, outlier_features, outlier_weight)
        return llm_int8_gemm(Operands(*codes, *outliers, bias=weight.bias, workspace=weight.workspace))
