"""StreamedDecoder: the runtime's own layers, one at a time, with an observer before every product."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial

import torch
from torch import Tensor

from qbench.runtime.attention.causal_attention import causal_attention
from qbench.runtime.attention.rotations import Rotation, Rotations
from qbench.runtime.caches.no_cache import NoCache
from qbench.runtime.caches.storage.latent_format import uncached_latents
from qbench.runtime.layers.attention import Attention, causal_attention_bf16
from qbench.runtime.layers.blocks import BlockBuilder
from qbench.runtime.layers.embedding import StoredTable
from qbench.runtime.layers.feed_forward import FeedForward
from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.layers.moe import ExpertFeedForward
from qbench.runtime.layers.norm import Norm
from quant.calibration.decoder import Observer, Step, SteppedLayer
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import EMBEDDING, FINAL_NORM, AttentionRule, ModelConfig
from quant.present import present
from quant.qtensor import QTensor
from quant.recipes.roles import Role, place_of


class StreamedDecoder:
    """`quant.calibration.decoder.Decoder` of a config: holds no weights, builds layers from those it is handed.

    impl  "reference": float32 throughout; "bf16": products of bfloat16-rounded inputs and weights, the rest in float32;
          "auto": the implementations of `load_model`
    """

    def __init__(self, config: ModelConfig, *, impl: str = "reference") -> None:
        self.config = config
        self.impl = impl

    def embed(self, tensors: Mapping[str, QTensor], tokens: Tensor) -> Tensor:
        builder = BlockBuilder(self.config, tensors.__getitem__, self.impl)
        return builder.embedding(StoredTable(tensors[EMBEDDING]))(tokens, torch.arange(tokens.shape[1]))

    def norm(self, tensors: Mapping[str, QTensor], x: Tensor) -> Tensor:
        return BlockBuilder(self.config, tensors.__getitem__, "reference").norm(FINAL_NORM.removesuffix(".weight"))(x)

    def layer(self, index: int, tensors: Mapping[str, QTensor]) -> "StreamedLayer":
        return StreamedLayer(self.config, index, tensors, self.impl)


class StreamedLayer:
    """One decoder layer; without an observer it runs the same code as inference, and nothing else."""

    def __init__(self, config: ModelConfig, index: int, tensors: Mapping[str, QTensor], impl: str) -> None:
        self.config = config
        self._index, self._impl = index, impl
        self._kv: KVScheme | None = None
        self._tap = Tap()
        self._block = _ObservedBuilder(config, tensors, impl, self._tap).block(index)
        self._rotations = Rotations(config)

    def keeping(self, kv: KVScheme | None) -> "StreamedLayer":
        """The same layer, whose queries read keys and values as this format gives them back. None: as computed"""
        other = copy(self)
        other._kv = kv
        return other

    @torch.no_grad()
    def __call__(self, x: Tensor, observer: Observer | None = None) -> Tensor:
        """x [B, T, H] float32, the first T positions of B sequences -> [B, T, H]; threads may call at the same time"""
        with self._tap.watched_by(observer):
            return self._block(x, *self._past(x, observer))

    @torch.no_grad()
    def show(self, x: Tensor, observer: Observer) -> None:
        """As a call on x, without the product that gives the outputs."""
        with self._tap.watched_by(observer, skipped=Role.FFN_DOWN):
            self._block(x, *self._past(x, observer))

    def in_steps(self) -> SteppedLayer | None:
        attention, feed_forward = self._block.attention, self._block.feed_forward
        if not isinstance(attention, Attention) or not isinstance(feed_forward, FeedForward):
            return None
        products = (attention.qkv, attention.output, feed_forward.gate_up, feed_forward.down)
        qkv, output, gate_up, down = (_observed(linears) for linears in products)
        steps = (
            Step(("before",), None, qkv.names, self._show_attention_input),
            Step(("before",), "attended", output.names, self._attend),
            Step(("before", "attended"), "between", gate_up.names, self._add_attention),
            Step(("between",), "gated", down.names, self._gate),
            Step(("between", "gated"), "after", (), self._add_feed_forward),
        )
        read_as = torch.bfloat16 if self._impl == "bf16" else torch.float32
        kept = {
            "attended": (output.row_size, read_as),
            "between": (self.config.hidden_size, torch.float32),
            "gated": (down.row_size, read_as),
        }
        return SteppedLayer(steps, kept)

    @torch.no_grad()
    def _show_attention_input(self, x: Tensor, observer: Observer) -> None:
        observer.inputs(self._block.attention.qkv.names, self._block.attention_norm(x))

    @torch.no_grad()
    def _attend(self, x: Tensor, observer: Observer) -> Tensor:
        last = _LastInput(observer)
        with self._tap.watched_by(last, skipped=Role.ATTN_OUTPUT):
            self._block.attend(x, *self._past(x, last))
        attended = present(last.x)
        observer.inputs(self._block.attention.output.names, attended)
        return attended

    @torch.no_grad()
    def _add_attention(self, x: Tensor, attended: Tensor, observer: Observer) -> Tensor:
        between = self._block.attention.add_output(attended, x)
        observer.inputs(self._block.feed_forward.gate_up.names, self._block.feed_forward_norm(between))
        return between

    @torch.no_grad()
    def _gate(self, between: Tensor, observer: Observer) -> Tensor:
        net = self._block.feed_forward
        gated = net.inner(between, self._block.feed_forward_norm)
        observer.inputs(net.down.names, gated)
        return gated

    @torch.no_grad()
    def _add_feed_forward(self, between: Tensor, gated: Tensor, observer: Observer) -> Tensor:
        return self._block.feed_forward.add_output(gated, between)

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

    def _past(self, x: Tensor, observer: Observer | None) -> tuple[list[Rotation], Tensor, NoCache]:
        """rotations, positions and cache of a call on x"""
        if x.shape[1] > self.config.max_positions:
            raise InputError(
                f"{x.shape[1]} tokens, but the model's context holds {self.config.max_positions}; shorten the windows"
            )
        positions = torch.arange(x.shape[1])
        attention, latents = partial(self._attention, observer), uncached_latents(self.config, self._kv)
        cache = NoCache(self.config, len(x), self._kv, attention, latents)
        return self._rotations(0, x.shape[1]), positions, cache

    def _attention(self, observer: Observer | None, q: Tensor, k: Tensor, v: Tensor, rule: AttentionRule) -> Tensor:
        """As `causal_attention`; shows the keys and values that a cache would keep."""
        if observer is not None:
            observer.keys_values(self._index, k, v)
        if self._impl == "bf16" and rule.is_plain and not rule.window:
            return causal_attention_bf16(q, k, v)
        return causal_attention(q, k, v, rule)


class _LastInput:
    """Observer that holds the last input, and shows keys and values to another."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.x: Tensor | None = None

    def inputs(self, names: Sequence[str], x: Tensor) -> None:
        self.x = x

    def keys_values(self, layer: int, k: Tensor, v: Tensor) -> None:
        self.observer.keys_values(layer, k, v)


class Tap(threading.local):
    """Holds the observer of the running call for a layer's linears, one per thread."""

    observer: Observer | None = None
    skipped: Role | None = None  # whose product nobody reads in this call

    @contextmanager
    def watched_by(self, observer: Observer | None, *, skipped: Role | None = None) -> Iterator[None]:
        self.observer, self.skipped = observer, skipped
        try:
            yield
        finally:
            self.observer, self.skipped = None, None


class ObservedLinears(FusedLinears):
    """FusedLinears that show their input before they multiply.

    hidden_size   size of the only output that may be skipped: of the products that end in the residual
    row_size      of their input
    """

    def __init__(self, names: Sequence[str], linears: FusedLinears, tap: Tap, hidden_size: int, row_size: int) -> None:
        self.names = tuple(f"{name}.weight" for name in names)
        self.role = place_of(self.names[0]).role
        self.observed = linears
        self.linears, self.formats = linears.linears, linears.formats
        self.biases, self.has_bias = linears.biases, linears.has_bias
        self.group = None  # never taken together with the next: its input would not be seen
        self.tap = tap
        self.hidden_size = hidden_size
        self.row_size = row_size

    def __call__(self, x: Tensor, norm: Norm | None = None, residual: Tensor | None = None) -> tuple[Tensor, ...]:
        if self.tap.observer is None:
            return self.observed(x, norm, residual)
        if norm is not None:
            x = norm(x)
        self.tap.observer.inputs(self.names, x)
        if self.tap.skipped is self.role:
            return (x.new_zeros(()).expand(*x.shape[:-1], self.hidden_size),)
        return self.observed(x, residual=residual)


def _observed(linears: FusedLinears) -> ObservedLinears:
    """The linears, which an _ObservedBuilder made."""
    assert isinstance(linears, ObservedLinears)
    return linears


class _ObservedBuilder(BlockBuilder):
    def __init__(self, config: ModelConfig, tensors: Mapping[str, QTensor], impl: str, tap: Tap) -> None:
        super().__init__(config, tensors.__getitem__, impl)
        self.tensors = tensors
        self.tap = tap

    def linears(self, *names: str) -> ObservedLinears:
        row_size = self.tensors[f"{names[0]}.weight"].shape[1]
        return ObservedLinears(names, super().linears(*names), self.tap, self.config.hidden_size, row_size)


def extra_tokens(experts: ExpertFeedForward, batches: Iterable[Tensor], wanted: Mapping[int, int]) -> dict[int, Tensor]:
    """For each expert, the tokens that score highest for it among those that were not routed to it.

    batches  inputs of the experts, [n, K] each; how tokens are cut into batches does not matter
    wanted   expert -> how many tokens
    returns  expert -> [min(wanted, tokens there are), K], best first
    """
    found: dict[int, tuple[Tensor, Tensor]] = {}
    for rows in batches:
        scores = experts.scores(rows)  # [n, E]
        chosen, _ = experts.choose(rows)
        others = scores.scatter(1, chosen, -1.0)  # below every probability: the expert's own tokens
        for expert, number in wanted.items():
            best = _best(others[:, expert], rows, number)
            if expert in found:
                both_scores, both_rows = (torch.cat(both) for both in zip(found[expert], best, strict=True))
                best = _best(both_scores, both_rows, number)
            found[expert] = best
    return {expert: rows for expert, (_, rows) in found.items()}


def _best(scores: Tensor, rows: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """At most `number` rows of the highest scores that are no mark of an own token; of equals, the earlier."""
    order = scores.argsort(descending=True, stable=True)[:number]
    order = order[scores[order] >= 0]
    return scores[order], rows[order]
