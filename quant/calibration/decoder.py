"""Decoder: what calibration asks of whatever runs the model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from quant.models import ModelConfig
from quant.qtensor import QTensor


class Observer(Protocol):
    """Is shown what the linears of a decoder layer read."""

    def inputs(self, names: Sequence[str], x: Tensor) -> None:
        """names: canonical names of the weights that share this input; x [..., K] float32"""
        ...

    def keys_values(self, layer: int, k: Tensor, v: Tensor) -> None:
        """k, v [B, G, T, D] float32, k after RoPE"""
        ...


class Step(NamedTuple):
    """From some of what a layer's earlier steps made to the input of its next linears, or to its output.

    reads   names of what it reads, "before" among them: the layer's input
    makes   what it makes, kept for later steps; "after" is the layer's output; None where nothing is worth keeping
    shows   the weights whose input it shows; none for the last
    run     (what it reads, each [B, T, size] ..., an observer) -> what it makes
    """

    reads: tuple[str, ...]
    makes: str | None
    shows: tuple[str, ...]
    run: Callable[..., Tensor | None]


class SteppedLayer(NamedTuple):
    """A layer that computes each product once, behind the linears before it as they are at that time.

    kept   name of what its steps make, but "after" -> last dimension, and type that loses nothing of what is read
    """

    steps: tuple[Step, ...]
    kept: Mapping[str, tuple[int, torch.dtype]]


class DecoderLayer(Protocol):
    def __call__(self, x: Tensor, observer: Observer | None = None) -> Tensor:
        """x [B, T, H] float32, the first T positions of B sequences -> [B, T, H]"""
        ...

    def show(self, x: Tensor, observer: Observer) -> None:
        """Shows what a call on x would, without the outputs: what none of the layer's linears reads is not computed."""
        ...

    def show_extra_tokens(self, batches: Iterable[Tensor], wanted: Mapping[int, int], observer: Observer) -> None:
        """Show experts tokens that the router did not send to them.

        batches   the layer's inputs, [B, T, H] each
        wanted    expert -> number of tokens to add
        """
        ...

    def in_steps(self) -> SteppedLayer | None:
        """The same in steps; None for a layer whose linears do not follow one another."""
        ...


class Decoder(Protocol):
    """Runs a model one decoder layer at a time; holds no weights itself."""

    config: ModelConfig

    def embed(self, tensors: Mapping[str, QTensor], tokens: Tensor) -> Tensor:
        """tensors: what embeds tokens, others are not looked at; tokens [B, T] int64 -> [B, T, H] float32"""
        ...

    def norm(self, tensors: Mapping[str, QTensor], x: Tensor) -> Tensor:
        """tensors: of the final norm; x [..., H] float32, normed by it as the head reads it"""
        ...

    def layer(self, index: int, tensors: Mapping[str, QTensor]) -> DecoderLayer:
        """The decoder layer of these tensors (all that it has), in whatever formats they are."""
        ...
