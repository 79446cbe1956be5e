"""Linears: one table from (format, device) to an implementation, best first, the reference last.

Every implementation is called with x [..., K] float32 and returns [..., N] float32. It also gives rows of its weight,
so that a tied embedding needs no table of its own.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, Protocol, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from qbench.path_names import tell_paths
from qbench.runtime.layers.packed_linears import (
    PackedFp8Linear,
    PackedLlmInt8Linear,
    PackedW4A4Linear,
    packed_fp8_bytes,
    packed_llm_int8_bytes,
    packed_w4a4_bytes,
)
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.formats import ActivationFormat, TurnedFp4, dequantize, get_format
from quant.formats.fp4_linear import to_blocks
from quant.formats.fp8 import FP8_FORMATS
from quant.formats.int8 import Int8Format
from quant.qtensor import QTensor

ANY = "any"
IMPLS = ("auto", "exact", "reference", "bf16")


class Linear(Protocol):
    name: str  # the implementation that runs, with its instruction set if it has several
    size_bytes: int  # memory it holds

    def __call__(self, x: Tensor) -> Tensor: ...

    def rows(self, index: np.ndarray) -> Tensor:
        """Rows of the weight as its format says, unrounded: index [n] int64 -> [n, K] float32"""
        ...


class ReferenceLinear:
    """The oracle: weights dequantized to float32 once, then x @ weight.T in float32.

    Where the format rounds activations, they are rounded here too, by the format's own NumPy code: that is part of the
    function, and only how it is computed differs.
    """

    name = "reference"

    def __init__(self, qtensor: QTensor) -> None:
        fmt = get_format(qtensor.format)
        self.input_format = fmt if isinstance(fmt, ActivationFormat) else None
        self.shared = qtensor.shared
        self.weight = as_tensor(dequantize(qtensor))  # [N, K]
        self.size_bytes = self.weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        if self.input_format is not None:
            tokens = x.reshape(-1, x.shape[-1]).numpy()  # [M, K]
            x = torch.from_numpy(self.input_format.fake_quantize_input(tokens, self.shared)).view(x.shape)
        return F.linear(x, self.weight)

    def rows(self, index: np.ndarray) -> Tensor:
        return self.weight[torch.from_numpy(index)]


class RoundedLinear:
    """Weights of any format and activations rounded to bfloat16, products summed in float32, the sum rounded, too: at
    twice the rate of the reference and more where a CPU has such products. It runs where impl is "bf16".
    """

    name = "torch-bf16-rounded"

    def __init__(self, qtensor: QTensor) -> None:
        self.weight = as_tensor(dequantize(qtensor)).bfloat16()  # [N, K]
        self.size_bytes = self.weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x.bfloat16(), self.weight).float()

    def rows(self, index: np.ndarray) -> Tensor:
        return self.weight[torch.from_numpy(index)].float()


class PackedLinear:
    """cpu_kernels' product on the stored codes, for whichever instruction set it chose.

    exact    weights are multiplied as stored for many tokens, too
    raises   InputError for static activations without their scale
    """

    def __init__(self, qtensor: QTensor, exact: bool = False) -> None:
        kernels = importlib.import_module("cpu_kernels")
        if isinstance(fmt := get_format(qtensor.format), Int8Format):
            fmt.input_scale(np.empty((0, qtensor.shape[1]), dtype=np.float32), qtensor.shared)
        parts = {name: np.ascontiguousarray(part) for name, part in (*qtensor.parts.items(), *qtensor.shared.items())}
        self._hold(kernels.PackedLinear(qtensor.format, parts, qtensor.shape, exact))

    @classmethod
    def over(
        cls, fmt: str, shape: tuple[int, int], memory: np.ndarray, shared: dict[str, np.ndarray], exact: bool
    ) -> Self:
        """A weight whose packed bytes are, or will be, in this memory.

        memory   uint8, at a multiple of 64; it may change between products
        shared   arrays of the whole tensor
        """
        linear = cls.__new__(cls)
        parts = {"packed": memory, **shared}
        linear._hold(importlib.import_module("cpu_kernels").PackedLinear(fmt, parts, shape, exact))
        return linear

    def _hold(self, packed: Any) -> None:
        self.packed = packed
        self.num_rows = packed.shape[0]
        self.size_bytes = packed.nbytes
        self.name = f"cpu-{packed.format}[{tell_paths(self._choice)}]"

    def _choice(self, num_tokens: int) -> tuple[str, str]:
        """Instruction set and path: "int8x256" rounds K-quants to int8 with a scale for 256 weights; f16 is multiplied
        in "bf16 products", both sides rounded, if it says so.
        """
        isa, path = self.packed.choice(num_tokens)
        rounding = importlib.import_module("cpu_kernels.linear_float").BF16_PRODUCT_ISAS
        rounds = self.packed.format == "f16" and isa in rounding
        return isa, "bf16 products" if rounds else path

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).contiguous()  # [M, K]
        y = torch.from_numpy(self.packed.matmul(rows.numpy()))  # [M, N]
        return y.view(*x.shape[:-1], self.num_rows)

    def rows(self, index: np.ndarray) -> Tensor:
        return torch.from_numpy(self.packed.rows(np.ascontiguousarray(index)))


def build_packed(qtensor: QTensor, exact: bool = False) -> Linear:
    """PackedLinear, or the reference for the rare weight that its kernels do not cover, as its name then says."""
    try:
        return PackedLinear(qtensor, exact)
    except NotImplementedError:
        return ReferenceLinear(qtensor)


def _has_packed_linear(format_name: str) -> bool:
    return has_cpu_kernels() and importlib.import_module("cpu_kernels").has_packed_linear(format_name)


def _has_cpu_kernels_for(format_name: str) -> bool:
    return has_cpu_kernels()


def _always(format_name: str) -> bool:
    return True


def _as_stored(format_name: str, shape: tuple[int, ...], stored_bytes: int) -> int:
    return stored_bytes


def _as_float32(format_name: str, shape: tuple[int, ...], stored_bytes: int) -> int:
    return 4 * prod(shape)


def _as_bf16(format_name: str, shape: tuple[int, ...], stored_bytes: int) -> int:
    return 2 * prod(shape)


def _as_packed(format_name: str, shape: tuple[int, ...], stored_bytes: int) -> int:
    """cpu_kernels packs 16 output rows side by side; the last panel is padded."""
    return importlib.import_module("cpu_kernels").packed_linear_bytes(format_name, shape)


@dataclass(frozen=True, slots=True)
class LinearImpl:
    """One row of the table: the implementation for weights of `format` on `device`, if `ready(format name)`.

    held_bytes  memory that it holds, from the weight's format, [N, K] and stored bytes
    is_packed   the product is cpu_kernels', which takes several such weights in one call
    """

    format: str
    device: str
    build: Callable[[QTensor], Linear]
    ready: Callable[[str], bool] = _always
    held_bytes: Callable[[str, tuple[int, ...], int], int] = _as_stored
    is_packed: bool = False


REFERENCE = LinearImpl(ANY, ANY, ReferenceLinear, held_bytes=_as_float32)
ROUNDED = LinearImpl(ANY, ANY, RoundedLinear, held_bytes=_as_bf16)

PACKED = LinearImpl(ANY, "cpu", build_packed, _has_packed_linear, _as_packed, is_packed=True)
EXACT = replace(PACKED, build=partial(build_packed, exact=True))


def build_mxfp4(qtensor: QTensor) -> Linear:
    """The weights of mxfp4a16 in the kernel of mxfp4, which has the same values in another order of bytes."""
    return build_packed(to_blocks(qtensor))


class TurnedLinear:
    """A weight of mxfp4a16-had: its codes in the kernel of mxfp4, and inputs turned before each product."""

    def __init__(self, qtensor: QTensor) -> None:
        fmt = get_format(qtensor.format)
        assert isinstance(fmt, TurnedFp4)
        self.format = fmt
        self.linear = build_mxfp4(fmt.plain(qtensor))
        self.name, self.size_bytes = f"{self.linear.name} of turned inputs", self.linear.size_bytes

    def __call__(self, x: Tensor) -> Tensor:
        return self.linear(torch.from_numpy(self.format.turn(x.numpy())))

    def rows(self, index: np.ndarray) -> Tensor:
        return torch.from_numpy(self.format.turn(self.linear.rows(index).numpy()))


def _mxfp4_bytes(format_name: str, shape: tuple[int, ...], stored_bytes: int) -> int:
    return _as_packed("mxfp4", shape, stored_bytes)


def _has_packed_mxfp4(format_name: str) -> bool:
    return _has_packed_linear("mxfp4")


# Best first; the first row that matches and is ready is built. The reference runs formats without a kernel, and
# everything if the extension is not built.
LINEARS = (
    PACKED,
    LinearImpl("llm-int8", "cpu", PackedLlmInt8Linear, _has_cpu_kernels_for, packed_llm_int8_bytes),
    LinearImpl("w4a4", "cpu", PackedW4A4Linear, _has_cpu_kernels_for, packed_w4a4_bytes),
    LinearImpl("mxfp4a16", "cpu", build_mxfp4, _has_packed_mxfp4, _mxfp4_bytes, is_packed=True),
    LinearImpl("mxfp4a16-had", "cpu", TurnedLinear, _has_packed_mxfp4, _mxfp4_bytes),
    *(
        LinearImpl(name, "cpu", PackedFp8Linear, _has_cpu_kernels_for, packed_fp8_bytes)
        for name, fmt in FP8_FORMATS.items()
        if not fmt.by_block
    ),
    REFERENCE,
)


def choose_linear(format_name: str, impl: str = "auto", device: str = "cpu") -> LinearImpl:
    """The row of the table that runs weights of this format.

    impl   "auto": the best there is; "exact": the same, but that a token's result does not depend on how many others
           there are; "reference"; "bf16": float weights and codes of floats rounded to bfloat16, while
           formats that round their inputs have a function of their own, and run as they do by "auto"
    """
    if impl not in IMPLS:
        raise InputError(f"impl {impl!r} is unknown; known: {', '.join(IMPLS)}")
    if impl == "reference":
        return REFERENCE
    if impl == "bf16" and not isinstance(get_format(format_name), ActivationFormat):
        return ROUNDED
    matches = (row for row in LINEARS if row.format in (format_name, ANY) and row.device in (device, ANY))
    row = next(row for row in matches if row.ready(format_name))
    return EXACT if impl == "exact" and row is PACKED else row


def as_tensor(array: np.ndarray) -> Tensor:
    """The array's memory as a tensor; a read-only array (a mapped file) is copied, as torch asks."""
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))
