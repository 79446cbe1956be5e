"""The decoder of every architecture on the CPU, with a KV cache and the kernels that fit.

`reference_decoder.py` has its equations on one page, for the Llama family; read that first. `layers.paths` decides
which code runs the layers.
"""

from collections.abc import Callable
from copy import copy
from typing import Self

import torch
from torch import Tensor

from qbench.run.cache_spec import CacheSpec
from qbench.runtime.attention.rotations import Rotations
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.cache_maker import CacheMaker
from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.caches.pooled_caches import PooledCaches
from qbench.runtime.caches.step import Step
from qbench.runtime.decoder_model import DecoderModel
from qbench.runtime.layers.block import Block
from qbench.runtime.layers.embedding import Embedding
from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.layers.norm import Norm
from qbench.runtime.layers.paths import AUTO, LayerPaths
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig


class Model(DecoderModel[Cache]):
    """The decoder on this machine's processor; built by `load_model`.

    paths         the code that can run its layers, best first
    caches        makes its caches; their KV format and their implementation are the model's
    path          the only row of `layers.paths` that may run the layers, or "auto"
    raises        InputError for a row that cannot run this model
    """

    # Whether a call may leave the head out and `logits` be called later, piece by piece.
    has_separate_head = True

    def __init__(
        self,
        config: ModelConfig,
        embedding: Embedding,
        blocks: list[Block],
        norm: Norm,
        head: FusedLinears,
        caches: CacheMaker,
        path: str = AUTO,
    ) -> None:
        self.config = config
        self.embedding = embedding
        self.blocks = blocks
        self.paths = LayerPaths(blocks, config, path)
        self.norm = norm
        self.head = head
        self.kv = caches.scheme
        self.attention = caches.attention
        self.impl = caches.impl
        self.cache_spec = caches.spec
        self.prefill_tally = caches.needs.tally
        self._caches = caches
        self.rotations = Rotations(config)
        self.impls: dict[str, str] = {}
        self.kernels: dict[str, str] = {}
        self.weight_bytes = 0
        self.runs_head = True

    def new_cache(
        self, batch: int = 1, capacity: int = 256, *, spec: CacheSpec | None = None, mode: str | None = None
    ) -> Cache:
        """An empty cache; keys and values are float32 where the model names no format for them.

        spec     layout, policy and prefill chunk; None: the model's own
        mode     of latent attention, one of MODES; None: as MODE_VARIABLE says, else the fastest one by measurements
        raises   InputError for an unknown mode, impossible sizes, and a policy or a mode that the model cannot have
        """
        return self._caches.new(spec, batch, capacity, mode)

    def without_head(self) -> Self:
        """The same weights; a call returns outputs [B, T, K] of the last layer, of which `logits` makes the logits."""
        other = copy(self)
        other.runs_head = False
        return other

    def attending(self, attention: str) -> Self:
        other = copy(self)
        other._caches = self._caches.attending(attention)
        other.attention, other.prefill_tally = attention, other._caches.needs.tally
        return other

    def cached_by(self, spec: CacheSpec) -> Self:
        other = copy(self)
        other._caches = self._caches.of_spec(spec)
        other.cache_spec, other.prefill_tally = other._caches.spec, other._caches.needs.tally
        return other

    def caching(self, make: Callable[[CacheMaker], CacheMaker]) -> Self:
        """The same weights; `make` gives the maker of the caches from that of this model."""
        other = copy(self)
        other._caches = make(self._caches)
        return other

    def page_pool(self, num_pages: int, page_size: int, num_sequences: int) -> PagePool:
        """A pool with room for `num_pages` pages of all layers and heads, split as the model's policy frees them.

        num_sequences  most sequences at once
        """
        caches = self._caches
        return caches.plan(caches.spec, reads_once=True, in_engine=True).pool(num_pages, page_size, num_sequences)

    def keeping(self, scheme: KVScheme) -> Self:
        if self.config.mla is not None:
            raise InputError(f"{self.config.architecture.name} packs its weights for the format of its latents")
        other = copy(self)
        other._caches = self._caches.of_scheme(scheme)
        other.kv, other.prefill_tally = scheme, other._caches.needs.tally
        return other

    def pooled_caches(
        self, pool: PagePool, max_chunk_tokens: int, make: Callable[..., PooledCaches] = PooledCaches
    ) -> PooledCaches:
        """Sequences of a pool, and caches over them, by the model's policy.

        max_chunk_tokens  most tokens of a prompt that a forward pass brings
        make              PooledCaches, or a kind of it
        raises            InputError for a policy that the pool cannot have
        """
        return make(self._caches, pool, max_chunk_tokens)

    def lead(self) -> None:
        """From now on other ranks, if there are any, follow the forward passes of this one."""

    @property
    def idle_s(self) -> float | None:
        """Seconds until `idle` is due, if no forward pass comes before; None: never"""
        return None

    def idle(self) -> None:
        """Keep ranks that wait for the next forward pass from a time-out."""

    def _uncached(self, tokens: Tensor) -> Cache:
        if self.cache_spec.make_policy().needs_future:
            return self._caches.foreseeing(lambda cache: self(tokens, cache, last_only=True), len(tokens))
        return self._caches.uncached(*tokens.shape)

    def _logits(self, step: Step, cache: Cache, last_only: bool) -> Tensor:
        outputs = self._run_layers(self._embedded(step), step, cache, last_only)
        return self.logits(outputs) if self.runs_head else outputs

    def _embedded(self, step: Step) -> Tensor:
        """[B, T, K], of a varlen batch [1, N, K]"""
        # Positions are made only for code that reads them: a decode step in one call does not.
        return self.embedding(step.tokens, None if self.embedding.positions is None else step.positions)

    def _run_layers(self, x: Tensor, step: Step, cache: Cache, last_only: bool) -> Tensor:
        is_uniform = step.counts is None
        rotations = self.rotations(step.seq_len, step.end) if is_uniform else self.rotations.at(step.positions)
        _, run = self.paths.choose(cache, x.shape[1])
        return run(x, rotations, step, cache, last_only)

    def logits(self, x: Tensor) -> Tensor:
        """The head's product with the normed outputs of the last layer: [..., K] -> [..., V]"""
        (logits,) = self.head(x, self.norm)
        softcap = self.config.logit_softcap
        return softcap * torch.tanh(logits / softcap) if softcap else logits
