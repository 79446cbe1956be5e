"""The decoder of every architecture: equations over tensors, one Cache for all that depends on the past."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from qbench.cache_kinds import DYNAMIC
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.kinds import CacheMaker
from qbench.runtime.caches.step import Step
from qbench.runtime.layers.block import Block
from qbench.runtime.layers.embedding import Embedding
from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.layers.kernel_layers import kernel_layers
from qbench.runtime.layers.latent_layers import latent_layers
from qbench.runtime.layers.norm import Norm
from qbench.runtime.layers.rotations import Rotations
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig


class Model:
    """Logits of token ids; built by `load_model`.

    impls         linear name -> the implementation that runs
    weight_bytes  memory that the weights hold
    kv            the format of its keys and values; None: floats
    one_call      its blocks as one call of the kernels, or None where they are not all of them
    impl          "auto": caches run on the kernels where those have the format; "reference": on torch
    """

    def __init__(
        self,
        config: ModelConfig,
        embedding: Embedding,
        blocks: list[Block],
        norm: Norm,
        head: FusedLinears,
        kv: KVScheme | None = None,
        impl: str = "auto",
        kind: str = DYNAMIC,
    ) -> None:
        self.config = config
        self.embedding = embedding
        self.blocks = blocks
        self.one_call = (latent_layers if config.mla else kernel_layers)(blocks, config)
        self.norm = norm
        self.head = head
        self.kv = kv
        self.impl = impl
        self._caches = CacheMaker(config, kv, impl, kind)
        self.rotations = Rotations(config)
        self.impls: dict[str, str] = {}
        self.weight_bytes = 0

    def new_cache(
        self, batch: int = 1, capacity: int = 256, *, kind: str | None = None, plan: str | None = None
    ) -> Cache:
        """An empty cache; keys and values are float32 where the model names no format for them.

        kind     as qbench.cache_kinds has it, as in "paged" or "window:256"; None: the model's own
        plan     of latent attention, one of PLANS; None: as PLAN_VARIABLE says, else what is measured to be fastest
        raises   InputError for an unknown kind or plan, impossible sizes, and what the kind or the format cannot be
        """
        return self._caches.new(kind, batch, capacity, plan)

    @property
    def cache_kind(self) -> str:
        """Of caches that are made without naming one."""
        return self._caches.kind

    @torch.inference_mode()
    def __call__(
        self,
        tokens: Tensor,
        cache: Cache | None = None,
        *,
        last_only: bool = False,
        num_valid: Sequence[int] | np.ndarray | None = None,
        cache_position: Sequence[int] | np.ndarray | Tensor | None = None,
    ) -> Tensor:
        """The logits of the token after each position; the cache, if given, then holds `tokens` too.

        tokens     [B, T] int64
        last_only  only the logits of each sequence's last token: a prefill needs no others
        num_valid  [B]: of row b the first num_valid[b] columns are tokens and the rest is padding, which is neither
                   kept nor seen; None: all T. Padding on the left: `Cache.pad_left`
        cache_position  [T], or [B, T] of each sequence: where the tokens stand; what the cache held from the first of
                   them on is forgotten, as a draft that is not taken. None: behind what it holds
        returns    [B, T, V] float32, NaN at padding, or [B, 1, V] with last_only
        raises     InputError for an id outside the vocabulary, more tokens than the context holds, or positions that
                   do not follow each other or what is held
        """
        if tokens.ndim != 2 or not tokens.numel():
            raise InputError(f"tokens of shape {list(tokens.shape)}, expected [batch, at least 1 token]")
        cache = cache or self._caches.of_one_pass(len(tokens))
        if cache_position is not None:
            cache.go_to(cache_position, tokens, num_valid)
        if cache.longest_pass is not None and tokens.shape[1] > cache.longest_pass:
            return self._in_parts(tokens, cache, last_only, num_valid)
        step = self._step(tokens, cache, num_valid)
        num_tokens = step.tokens.shape[1]
        alike = step.counts is None
        rotations = self.rotations(step.length, step.end) if alike else self.rotations.at(step.positions)
        # Positions are made only for those who read them: a decode step in one call does not.
        learned = None if self.embedding.positions is None else step.positions
        x = self.embedding(step.tokens, learned)  # [B, T, K], of a ragged pass [1, N, K]
        if self.one_call is not None and self.one_call.takes(cache, num_tokens):
            x = self.one_call(x, rotations[0], num_tokens, cache, last_only)
        else:
            positions = step.positions
            for block in self.blocks:
                x = block(x, rotations, positions, cache)
            x = step.wanted(x, last_only)
        cache.advance(step.num_new)
        return step.as_given(self.logits(x), *tokens.shape, last_only)

    def logits(self, x: Tensor) -> Tensor:
        """What the head makes of the last layer's outputs: [..., K] -> [..., V]"""
        (logits,) = self.head(x, self.norm)
        softcap = self.config.logit_softcap
        return softcap * torch.tanh(logits / softcap) if softcap else logits

    def _in_parts(
        self, tokens: Tensor, cache: Cache, last_only: bool, num_valid: Sequence[int] | np.ndarray | None
    ) -> Tensor:
        """The same in as many passes as the cache asks for."""
        if num_valid is not None or cache.is_padded:
            raise InputError(
                f"{tokens.shape[1]} columns with padding, but this cache takes {cache.longest_pass} tokens at once; "
                "give them in parts"
            )
        parts = [self(part, cache, last_only=last_only) for part in tokens.split(cache.longest_pass, dim=1)]
        return parts[-1] if last_only else torch.cat(parts, dim=1)

    def _step(self, tokens: Tensor, cache: Cache, num_valid: Sequence[int] | np.ndarray | None) -> Step:
        step = cache.begin(tokens, num_valid)
        if step.end > self.config.max_positions:
            raise InputError(
                f"{step.end} tokens, but the model's context holds {self.config.max_positions}; shorten the text"
            )
        return step
