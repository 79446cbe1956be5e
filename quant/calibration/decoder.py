"""Decoder: the interface between calibration and the code that runs the model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from quant.models import ModelConfig
from quant.qtensor import QTensor


class Observer(Protocol):
    """Receives the inputs of the linears of a decoder layer."""

    def inputs(self, names: Sequence[str], x: Tensor) -> None:
        """names: canonical names of the weights that share this input; x [..., K] float32"""
        ...

    def keys_values(self, layer: int, k: Tensor, v: Tensor) -> None:
        """k, v [B, G, T, D] float32, k after RoPE"""
        ...


class Step(NamedTuple):
    """From results of a layer's earlier steps to the input of its next linears, or to its output.

    reads   names of its inputs; "before" is the layer's input
    makes   name of its result, kept for later steps; "after" is the layer's output; None if the result need not be kept
    shows   the weights whose input it shows; () for the last
    run     (its inputs, each [B, T, size] ..., an observer) -> its result
    """

    reads: tuple[str, ...]
    makes: str | None
    shows: tuple[str, ...]
    run: Callable[..., Tensor | None]


class SteppedLayer(NamedTuple):
    """A layer that computes each product once, behind the linears before it as they are at that time.

    kept   name of each result except "after" -> last dimension, and type that loses nothing
    """

    steps: tuple[Step, ...]
    kept: Mapping[str, tuple[int, torch.dtype]]


class DecoderLayer(Protocol):
    def __call__(self, x: Tensor, observer: Observer | None = None) -> Tensor:
        """x [B, T, H] float32, the first T positions of B sequences -> [B, T, H]"""
        ...

    def show(self, x: Tensor, observer: Observer) -> None:
        """Shows the same inputs as a call on x, without the outputs: results that no linear of the layer reads are not
        computed.
        """
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
        """tensors: those that embed tokens, others are ignored; tokens [B, T] int64 -> [B, T, H] float32"""
        ...

    def norm(self, tensors: Mapping[str, QTensor], x: Tensor) -> Tensor:
        """tensors: of the final norm; x [..., H] float32, normed by it as the head reads it"""
        ...

    def layer(self, index: int, tensors: Mapping[str, QTensor]) -> DecoderLayer:
        """The decoder layer of these tensors (all that it has), in whatever formats they are."""
        ...
