"""StreamedDecoder: the runtime's own layers, one at a time, with an observer before every product."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from qbench.runtime.attention_bf16 import causal_attention_bf16
from qbench.runtime.blocks import BlockBuilder
from qbench.runtime.cache import NoCache
from qbench.runtime.embedding import Embedding, StoredTable
from qbench.runtime.extra_tokens import extra_tokens
from qbench.runtime.fused import FusedLinears
from qbench.runtime.norm import RMSNorm
from qbench.runtime.rope import inverse_frequencies, rotation
from quant.calibration.decoder import Observer
from quant.errors import InputError
from quant.models import EMBEDDING, ModelConfig
from quant.qtensor import QTensor
from quant.recipes.roles import Role, place_of


class StreamedDecoder:
    """`quant.calibration.decoder.Decoder` of a config: holds no weights, builds layers from those it is handed.

    impl  "reference": float32 throughout; "bf16": products of bfloat16-rounded inputs and weights, the rest in float32;
          "auto": what `load_model` would run
    """

    def __init__(self, config: ModelConfig, *, impl: str = "reference") -> None:
        self.config = config
        self.impl = impl
        self.num_layers = config.num_layers

    def embed(self, tensors: Mapping[str, QTensor], tokens: Tensor) -> Tensor:
        return Embedding(StoredTable(tensors[EMBEDDING]), self.config.vocab_size)(tokens)

    def layer(self, index: int, tensors: Mapping[str, QTensor]) -> "StreamedLayer":
        return StreamedLayer(self.config, index, tensors, self.impl)


class StreamedLayer:
    """One decoder layer; without an observer it runs what inference runs, and nothing else."""

    def __init__(self, config: ModelConfig, index: int, tensors: Mapping[str, QTensor], impl: str) -> None:
        self.config = config
        self._impl = impl
        self._tap = Tap()
        self._block = _ObservedBuilder(config, tensors, impl, self._tap).block(index)
        self._inverse_frequencies = inverse_frequencies(config.rope, config.rope_dim)

    @torch.no_grad()
    def __call__(self, x: Tensor, observer: Observer | None = None) -> Tensor:
        """x [B, T, H] float32, the first T positions of B sequences -> [B, T, H]; threads may call at the same time"""
        with self._tap.watched_by(observer):
            return self._block(x, *self._past(x, observer))

    @torch.no_grad()
    def show(self, x: Tensor, observer: Observer) -> None:
        """As a call on x, without the product that gives the outputs."""
        with self._tap.watched_by(observer, shows_only=True):
            self._block(x, *self._past(x, observer))

    @torch.no_grad()
    def show_extra_tokens(self, batches: Iterable[Tensor], wanted: Mapping[int, int], observer: Observer) -> None:
        """Shows experts that got too few tokens more of them, for the statistics alone: no output changes.

        batches  the same hidden states [B, T, H] that the layer was called with, or a part of them
        wanted   expert -> how many tokens more; those not routed to it that the router scores highest for it
        """
        extra = extra_tokens(self._block.feed_forward, (self._feed_forward_input(x) for x in batches), wanted)
        with self._tap.watched_by(observer):
            for expert, rows in extra.items():
                self._block.feed_forward.experts[expert](rows)

    def _feed_forward_input(self, x: Tensor) -> Tensor:
        """[B, T, H] -> [B * T, H]"""
        return self._block.feed_forward_norm(self._block.attend(x, *self._past(x, None))).flatten(0, 1)

    def _past(self, x: Tensor, observer: Observer | None) -> tuple[tuple[Tensor, Tensor], Tensor, "ObservedCache"]:
        """rope, positions and cache of a call on x"""
        if x.shape[1] > self.config.max_positions:
            raise InputError(
                f"{x.shape[1]} tokens, but the model's context holds {self.config.max_positions}; shorten the windows"
            )
        positions = torch.arange(x.shape[1])
        rope = rotation(self._inverse_frequencies, positions, self.config.rope.rotation_scale)
        return rope, positions, ObservedCache(observer, self._impl)


class Tap(threading.local):
    """Where a layer's linears find the observer of the call that runs, one a thread."""

    observer: Observer | None = None
    shows_only: bool = False  # whether nobody reads what the layer gives

    @contextmanager
    def watched_by(self, observer: Observer | None, *, shows_only: bool = False) -> Iterator[None]:
        self.observer, self.shows_only = observer, shows_only
        try:
            yield
        finally:
            self.observer, self.shows_only = None, False


class ObservedLinears:
    """FusedLinears that show their input before they multiply.

    unread_size   of their output, where no linear of the layer reads it; None where one does
    """

    group = None  # never taken together with the next: its input would not be seen

    def __init__(self, names: Sequence[str], linears: FusedLinears, tap: Tap, unread_size: int | None) -> None:
        self.names = tuple(f"{name}.weight" for name in names)
        self.linears = linears
        self.tap = tap
        self.unread_size = unread_size

    def __call__(self, x: Tensor, norm: RMSNorm | None = None, residual: Tensor | None = None) -> tuple[Tensor, ...]:
        if self.tap.observer is None:
            return self.linears(x, norm, residual)
        if norm is not None:
            x = norm(x)
        self.tap.observer.inputs(self.names, x)
        if self.tap.shows_only and self.unread_size is not None:
            return (x.new_zeros(()).expand(*x.shape[:-1], self.unread_size),)
        return self.linears(x, residual=residual)


class ObservedCache(NoCache):
    """Keeps nothing, and shows the keys and values that a cache would keep."""

    def __init__(self, observer: Observer | None, impl: str) -> None:
        self.observer = observer
        self.impl = impl

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        if self.observer is not None:
            self.observer.keys_values(layer, k, v)
        if self.impl == "bf16":
            return causal_attention_bf16(q, k, v)
        return super().attend(layer, q, k, v, positions)


class _ObservedBuilder(BlockBuilder):
    def __init__(self, config: ModelConfig, tensors: Mapping[str, QTensor], impl: str, tap: Tap) -> None:
        super().__init__(config, tensors.__getitem__, impl)
        self.tap = tap

    def linears(self, *names: str) -> ObservedLinears:
        is_last = place_of(f"{names[0]}.weight").role is Role.FFN_DOWN
        return ObservedLinears(names, super().linears(*names), self.tap, self.config.hidden_size if is_last else None)
