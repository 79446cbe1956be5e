"""Decoder: what calibration asks of whatever runs the model."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor

from quant.qtensor import QTensor


class Observer(Protocol):
    """Is shown what the linears of a decoder layer read."""

    def inputs(self, names: Sequence[str], x: Tensor) -> None:
        """names: canonical names of the weights that share this input; x [..., K] float32"""
        ...

    def keys_values(self, layer: int, k: Tensor, v: Tensor) -> None:
        """k, v [B, G, T, D] float32, k after RoPE"""
        ...


class DecoderLayer(Protocol):
    def __call__(self, x: Tensor, observer: Observer | None = None) -> Tensor:
        """x [B, T, H] float32, the first T positions of B sequences -> [B, T, H]"""
        ...

    def show(self, x: Tensor, observer: Observer) -> None:
        """Shows what a call on x would, without the outputs: what none of the layer's linears reads is not computed."""
        ...


class Decoder(Protocol):
    """Runs a model one decoder layer at a time; holds no weights itself."""

    num_layers: int

    def embed(self, tensors: Mapping[str, QTensor], tokens: Tensor) -> Tensor:
        """tensors: what embeds tokens, others are not looked at; tokens [B, T] int64 -> [B, T, H] float32"""
        ...

    def layer(self, index: int, tensors: Mapping[str, QTensor]) -> DecoderLayer:
        """The decoder layer of these tensors (all that it has), in whatever formats they are."""
        ...
