"""Method: how the weights of one decoder layer are rounded, and its remarks on the rounding."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from quant.errors import InputError
from quant.formats.base import EFFORTS, Format
from quant.models import ModelConfig, split_name
from quant.qtensor import QTensor
from quant.source import SharedInfo
from quant.stats import InputStats


@dataclass(frozen=True, slots=True)
class Layer:
    """The tensors that are quantized at one time: the linears of a decoder layer that share a method, or any other set
    of tensors.

    weights  canonical name -> [..., K] float32
    formats  canonical name -> format name, of weights and vectors
    vectors  canonical name -> [N] float32: norms and biases of the same decoder layer, which a method may fold into
    config   the model's; None where the tensors are no part of a decoder layer
    remarks  canonical name -> a line on its rounding that the user should know; filled by the method
    """

    weights: Mapping[str, np.ndarray]
    formats: Mapping[str, str]
    vectors: Mapping[str, np.ndarray] = field(default_factory=dict)
    config: ModelConfig | None = None
    remarks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Method(ABC):
    """An algorithm from float weights to a format's codes: a pure function of weights and statistics.

    Subclasses are frozen dataclasses whose fields are the method's options.
    paper   that describes it, as in "arXiv:2210.17323"; None: no paper
    needs   statistics of `InputStats` that it reads: "absmax", "imatrix", "hessian", "sample"; may be empty
    weighs_tied_tables   whether a table that embeds tokens and is the head, too, is rounded by the head's inputs;
            else without statistics
    stands_alone   whether a weight's rounding depends on no other weight of the layer
    rows_stand_alone   whether a row's rounding depends on no other row of its weight
    """

    name: ClassVar[str]
    paper: ClassVar[str | None] = None
    needs: ClassVar[frozenset[str]] = frozenset()
    weighs_tied_tables: ClassVar[bool] = True
    stands_alone: ClassVar[bool] = True
    rows_stand_alone: ClassVar[bool] = True

    @abstractmethod
    def quantize_layer(self, layer: Layer, stats: Mapping[str, InputStats]) -> dict[str, QTensor]:
        """Every weight of the layer in its format, and those vectors that the method changed.

        stats    canonical name -> statistics of that linear's input; empty for a method without needs
        raises   InputError for weights or statistics that the method cannot work with
        """

    def check_format(self, fmt: Format, row_size: int) -> None:  # noqa: B027  (most methods round to any format)
        """raises InputError if the method cannot round rows of this size to the format, whatever the statistics"""

    def shared(self, fmt: Format, row_size: int) -> tuple[SharedInfo, ...]:
        """The entries that a weight of this format will have in `shared`, if they do not depend on the statistics."""
        return ()


def check_effort(effort: str) -> None:
    """raises InputError unless `effort` is one that formats know"""
    if effort not in EFFORTS:
        raise InputError(f"effort is {effort!r}, expected one of {', '.join(EFFORTS)}")


def remark_lines(remarks: Mapping[str, str]) -> list[str]:
    """remarks: canonical name of a weight -> its method's remark; equal ones of a layer become one line"""
    places: dict[tuple[int | None, str], list[str]] = {}
    for name, words in remarks.items():
        places.setdefault((split_name(name)[1], words), []).append(name)
    return [_remark_line(layer, words, names) for (layer, words), names in places.items()]


def _remark_line(layer: int | None, words: str, names: list[str]) -> str:
    if layer is None:
        return f"{names[0]}: {words}"
    modules = [name.removesuffix(".weight").rpartition(".")[2] for name in names]
    return f"layer {layer}: {words} for {', '.join(dict.fromkeys(modules))}"
