"""DecoderModel: how every decoder is called, on the CPU and on a device.

Without a cache, a call computes the function of `reference_decoder.py`, where the equations are on one page. With a
cache it computes the same for the new tokens alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from qbench.run.cache_spec import CacheSpec
from qbench.runtime.caches.sequences import Sequences
from qbench.runtime.caches.step import Step
from qbench.runtime.prefill_tally import PrefillTally
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig

SomeCache = TypeVar("SomeCache", bound=Sequences)


class DecoderModel(ABC, Generic[SomeCache]):
    """Logits of token ids, one forward pass after another over a cache.

    impls         linear name -> the implementation that runs
    kernels       implementations of ops other than linears, if the layers name them
    weight_bytes  memory that the weights hold
    kv            the format of its keys and values; None: floats
    cache_spec    layout and policy of caches for which no other is given
    attention     the user's choice of attention_choice.ATTENTIONS; None: the best that the model can have
    prefill_tally  counts of the prefills under a pattern; None: the model has no patterns
    """

    config: ModelConfig
    kv: KVScheme | None
    impls: dict[str, str]
    kernels: dict[str, str]
    weight_bytes: int
    cache_spec: CacheSpec
    attention: str | None
    prefill_tally: PrefillTally | None = None

    @abstractmethod
    def attending(self, attention: str) -> Self:
        """The same weights, with attention by another code of `attention_choice`.

        raises   InputError for a choice that the model, its KV format or its cache cannot have
        """

    def following(self, policy: str) -> Self:
        """`cached_by` with another policy."""
        return self.cached_by(replace(self.cache_spec, policy=policy))

    def cached_by(self, spec: CacheSpec) -> Self:
        """The same weights, whose caches have another layout and policy.

        raises   InputError for those that the model cannot have
        """
        raise InputError(f"{self.config.architecture.name} has one kind of cache; got {spec}")

    def keeping(self, scheme: KVScheme) -> Self:
        """The same weights, with keys and values in another format.

        raises   InputError if the weights are packed for one format
        """
        raise InputError(f"a loaded {type(self).__name__} has one KV format; load the model again for another one")

    @abstractmethod
    def new_cache(self, batch: int = 1, capacity: int = 256, *, spec: CacheSpec | None = None) -> SomeCache:
        """An empty cache.

        spec     layout, policy and prefill chunk; None: the model's own
        raises   InputError for impossible sizes, and for a policy that the model cannot have
        """

    @abstractmethod
    def _uncached(self, tokens: Tensor) -> SomeCache:
        """A cache for tokens [B, T] that nothing follows."""

    @abstractmethod
    def _logits(self, step: Step, cache: SomeCache, last_only: bool) -> Tensor:
        """Return float32 logits of the tokens that `step` asks for, and append its keys and values to the cache."""

    @torch.inference_mode()
    def __call__(
        self,
        tokens: Tensor,
        cache: SomeCache | None = None,
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
        cache_position  [T], or [B, T] of each sequence: positions of the tokens; tokens that the cache held from the
                        first of them on are forgotten, such as a draft that is not taken. None: after the held ones
        returns    [B, T, V] float32, NaN at padding, or [B, 1, V] with last_only
        raises     InputError for an id outside the vocabulary, more tokens than the context holds, or positions that do
                   not follow each other or the held ones
        """
        if tokens.ndim != 2 or not tokens.numel():
            raise InputError(f"tokens of shape {list(tokens.shape)}, expected [batch, at least 1 token]")
        cache = self._uncached(tokens) if cache is None else cache
        if cache_position is not None:
            cache.go_to(cache_position, tokens, num_valid)
        if cache.max_chunk_tokens is not None and tokens.shape[1] > cache.max_chunk_tokens:
            return self._in_parts(tokens, cache, last_only, num_valid)
        return self._pass(tokens, cache, last_only, num_valid)

    def _pass(
        self, tokens: Tensor, cache: SomeCache, last_only: bool, num_valid: Sequence[int] | np.ndarray | None
    ) -> Tensor:
        """All tokens at once."""
        step = self._step(tokens, cache, num_valid)
        logits = self._logits(step, cache, last_only)
        cache.advance(step.num_new)
        return step.as_given(logits, tokens.shape[0], tokens.shape[1], last_only)

    def _in_parts(
        self, tokens: Tensor, cache: SomeCache, last_only: bool, num_valid: Sequence[int] | np.ndarray | None
    ) -> Tensor:
        """The same in as many forward passes as the cache asks for."""
        if num_valid is not None or cache.is_padded:
            raise InputError(
                f"{tokens.shape[1]} columns with padding, but this cache takes {cache.max_chunk_tokens} tokens "
                "at once; give them in parts"
            )
        parts = [self(part, cache, last_only=last_only) for part in tokens.split(cache.max_chunk_tokens, dim=1)]
        return parts[-1] if last_only else torch.cat(parts, dim=1)

    def _step(self, tokens: Tensor, cache: SomeCache, num_valid: Sequence[int] | np.ndarray | None) -> Step:
        step = cache.begin(tokens, num_valid)
        if step.end > self.config.max_positions:
            raise InputError(
                f"{step.end} tokens, but the model's context holds {self.config.max_positions}; shorten the text"
            )
        return step
