"""CacheMaker: a cache of any kind for one model, in the format that it keeps keys and values in."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from qbench.cache_kinds import DYNAMIC, NONE, PAGED, POLICY, STATIC, WINDOW, CacheKind, parse_kind
from qbench.policies import CachePolicy, TokenKinds, parse_policy
from qbench.runtime.caches.cache import Cache, DenseCache, NoCache
from qbench.runtime.caches.head_storage import HeadStorage
from qbench.runtime.caches.kernel_cache import BLOCK_TOKENS, KernelCache, has_store
from qbench.runtime.caches.kernel_sinks import KernelSinkCache, has_kernel_sinks
from qbench.runtime.caches.kv_storage import KVStorage, TorchStorage
from qbench.runtime.caches.latent_cache import LatentRows
from qbench.runtime.caches.latent_choice import chosen_latents
from qbench.runtime.caches.latent_kernel_cache import new_latent_cache
from qbench.runtime.caches.layered_cache import LayeredCache, config_of, scheme_of
from qbench.runtime.caches.over_pages import paged_cache
from qbench.runtime.caches.owned_pages import GrowingSequence, WindowSequence, window_pages
from qbench.runtime.caches.pages import PagePool
from qbench.runtime.caches.policy_cache import PolicyCache
from qbench.runtime.caches.quantized_cache import QuantizedCache, RoundTripCache, layer_scales
from qbench.runtime.caches.recompute import RecomputeCache
from qbench.runtime.caches.sink_cache import SinkCache, check_sinks
from quant.errors import InputError
from quant.kv import KVScheme
from quant.kv.codec import Codec
from quant.kv.floats import Floats
from quant.models import AttentionRule, ModelConfig
from quant.present import present

LATENT_KINDS = (DYNAMIC, STATIC, PAGED, WINDOW)  # kinds that attend to latents by a mode

# Tokens that a window cache takes at once: enough to fill the tiles of any product many times over, and little memory
# beside a usual window of 4096.
MAX_CHUNK_TOKENS = 256


class CacheMaker:
    """Caches of one model.

    scheme   format of keys and values; None: float32
    impl     "reference": on torch; others: on the kernels where those have the format
    kind     of caches that are not told theirs, as `parse_kind` reads it
    token_kinds  finds special tokens and punctuation when a policy wants to know them
    """

    def __init__(
        self,
        config: ModelConfig,
        scheme: KVScheme | None,
        impl: str,
        kind: str = DYNAMIC,
        token_kinds: Callable[[], TokenKinds] = TokenKinds,
    ) -> None:
        self.config, self.scheme, self.impl, self.token_kinds = config, scheme, impl, token_kinds
        self.kind = kind
        parse_kind(kind)

    def new(self, kind: str | None, batch: int, capacity: int, mode: str | None = None) -> Cache:
        """An empty cache.

        mode     of latent attention, kinds dynamic, static, paged and window
        raises   InputError for an unknown kind, impossible sizes, or what the kind does not go with
        """
        named = parse_kind(self.kind if kind is None else kind)
        if batch < 1 or capacity < 1:
            raise InputError(f"cache of batch {batch} and capacity {capacity}, expected at least 1 of each")
        if mode is not None and named.name not in LATENT_KINDS:
            raise InputError(f"a cache of kind {named.name} has no modes; a mode goes with {', '.join(LATENT_KINDS)}")
        if named.name == NONE:
            return RecomputeCache(self.config, self._uncached(batch))
        if named.name == WINDOW:
            return self._window(batch, capacity, named, mode)
        if named.name == PAGED:
            return self._paged(batch, capacity, mode)
        if named.name == POLICY:
            return self._of_policy(batch, present(named.policy))
        cache = self._dynamic(batch, capacity, mode)
        cache.max_held = min(capacity, self.config.max_positions) if named.name == STATIC else None
        return cache

    def uncached(self, batch: int) -> Cache:
        """Keeps nothing; keys and values pass through the format, and a query sees what it would in the cache."""
        kind = parse_kind(self.kind)
        if kind.sinks:
            return self._sinks(batch, kind, uncached=True, mode=None)
        if kind.name == POLICY:  # evicts between forward passes, so the text takes several
            cache = self._of_policy(batch, present(kind.policy))
            cache.max_chunk_tokens = MAX_CHUNK_TOKENS
            return cache
        _, rows = (None, None) if self.scheme is None else chosen_latents(self.config, self.scheme)
        cache = self._uncached(batch) if rows is None else LatentRows(self.config, rows, batch)
        if kind.name == WINDOW:
            cache.rules = window_rules(self.config, kind.window)
        return cache

    def _uncached(self, batch: int) -> NoCache:
        """Of every head's own keys and values."""
        if self.scheme is None:
            return NoCache(self.config, batch)
        return RoundTripCache(self.config, self.scheme, batch)

    def _dynamic(self, batch: int, capacity: int, mode: str | None) -> Cache:
        config, scheme = self.config, self.scheme
        mode, rows = chosen_latents(config, scheme, mode, impl=self.impl)
        if rows is not None:
            return new_latent_cache(config, rows, mode, batch, capacity, in_kernels=self.impl != "reference")
        if self.impl != "reference" and mode is None and has_store(config, scheme):
            return KernelCache(config, scheme, batch, capacity)
        if scheme is not None:
            return QuantizedCache(config, scheme, batch, capacity)
        return DenseCache(config, batch, capacity)

    def _paged(self, batch: int, capacity: int, mode: str | None) -> Cache:
        num_pages = batch * -(-min(capacity, self.config.max_positions) // BLOCK_TOKENS)
        pool = PagePool(self.config, self.scheme, num_pages, impl=self.impl, mode=mode)
        return paged_cache(pool, [GrowingSequence(pool) for _ in range(batch)])

    def _of_policy(self, batch: int, text: str) -> PolicyCache:
        policy = policy_for(text, self.config, self.scheme)
        storages = [self._storage(layer, batch, policy) for layer in range(self.config.num_layers)]
        cache = PolicyCache(self.config, storages, policy, batch)
        if policy.reads_token_kinds:
            cache.token_kinds = self.token_kinds()
        return cache

    def _storage(self, layer: int, batch: int, policy: CachePolicy) -> KVStorage:
        codecs, scales = floats_or_codecs(self.scheme), (None, None)
        if self.scheme is not None:
            scales = layer_scales(self.scheme, layer)
        if not policy.per_head_lengths or self.config.attention_rule(layer).window:
            return TorchStorage(batch, BLOCK_TOKENS, codecs, scales)
        own = list(zip(*(scale_of_each_head(scale, self.config.num_kv_heads) for scale in scales), strict=True))
        return HeadStorage([[TorchStorage(1, BLOCK_TOKENS, codecs, pair) for pair in own] for _ in range(batch)])

    def _window(self, batch: int, capacity: int, kind: CacheKind, mode: str | None) -> Cache:
        rules = window_rules(self.config, kind.window)
        if kind.sinks:
            return self._sinks(batch, kind, uncached=False, mode=mode)
        if all(rule.window for rule in rules):
            return self._windows_alone(batch, rules, mode)
        near = [layer for layer, rule in enumerate(rules) if rule.window]
        far = [layer for layer, rule in enumerate(rules) if not rule.window]
        near_part = self._of_layers(near)._windows_alone(batch, [rules[layer] for layer in near], mode)
        far_part = self._of_layers(far)._paged(batch, capacity, mode)
        cache = LayeredCache(self.config, (near_part, far_part), (near, far))
        cache.max_chunk_tokens = MAX_CHUNK_TOKENS
        return cache

    def _of_layers(self, layers: Sequence[int]) -> "CacheMaker":
        return CacheMaker(config_of(self.config, layers), scheme_of(self.scheme, layers), self.impl)

    def _windows_alone(self, batch: int, rules: list[AttentionRule], mode: str | None) -> Cache:
        """Of layers that have a window, all of them."""
        longest = max(rule.window for rule in rules)
        most_pages = window_pages(longest, MAX_CHUNK_TOKENS, BLOCK_TOKENS)
        pool = PagePool(self.config, self.scheme, batch * most_pages, impl=self.impl, mode=mode)
        cache = paged_cache(pool, [WindowSequence(pool, longest, most_pages) for _ in range(batch)])
        cache.rules, cache.max_chunk_tokens = rules, MAX_CHUNK_TOKENS
        return cache

    def _sinks(self, batch: int, kind: CacheKind, *, uncached: bool, mode: str | None) -> Cache:
        """uncached: of a whole text at once"""
        window = present(kind.window)  # only a kind with a window has sinks
        check_sinks(self.config, window, kind.sinks)
        max_chunk_tokens = max_chunk_tokens_of(self.config, window, kind.sinks)
        most_pages = window_pages(window, max_chunk_tokens, BLOCK_TOKENS)
        num_pages = batch * (most_pages + -(-kind.sinks // BLOCK_TOKENS))
        in_kernels = self.impl != "reference" and has_kernel_sinks(self.config, self.scheme)
        pool = PagePool(self.config, self.scheme, num_pages, impl="auto" if in_kernels else "reference", mode=mode)
        if uncached:
            sequences = [GrowingSequence(pool) for _ in range(batch)]
        else:
            sequences = [WindowSequence(pool, window, most_pages, kind.sinks) for _ in range(batch)]
        cache = (KernelSinkCache if in_kernels else SinkCache)(pool, sequences, window, kind.sinks)
        cache.rules = window_rules(self.config, window)
        cache.max_chunk_tokens = None if uncached else max_chunk_tokens
        return cache


def policy_for(text: str, config: ModelConfig, scheme: KVScheme | None) -> CachePolicy:
    """The policy for a model whose keys and values are kept in this format.

    raises   InputError for options that the model or the format cannot have
    """
    codecs = floats_or_codecs(scheme)
    if any(codec.token_group > 1 for codec in codecs):
        raise InputError(
            f"{present(scheme).format.name} encodes several tokens together, of which a policy may keep only some; "
            "choose a format that encodes each token by itself"
        )
    widths = zip(codecs, (config.head_dim, config.value_dim), strict=True)
    token_bytes = sum(codec.bytes_per_token(config.num_kv_heads, width) for codec, width in widths)
    return parse_policy(text).for_model(config.num_layers, config.num_layers * token_bytes)


def floats_or_codecs(scheme: KVScheme | None) -> tuple[Codec, Codec]:
    """Codecs of keys and values."""
    if scheme is not None:
        return scheme.format.keys, scheme.format.values
    floats = Floats(torch.float32)
    return floats, floats


def scale_of_each_head(scale: Tensor | None, num_kv_heads: int) -> list[Tensor | None]:
    """[1] of each head, from the [G or 1] of all"""
    return [None] * num_kv_heads if scale is None else list(scale.expand(num_kv_heads).split(1))


def window_rules(config: ModelConfig, window: int | None) -> list[AttentionRule]:
    """Of each layer, where none sees more than `window` tokens; None: as the model has it.

    raises   InputError where no layer has a window
    """
    rules = [config.attention_rule(layer) for layer in range(config.num_layers)]
    if window is not None:
        return [replace(rule, window=min(rule.window or window, window)) for rule in rules]
    if not any(rule.window for rule in rules):
        raise InputError("all layers of this model attend to all tokens; give them a window, as in window:256")
    return rules


def max_chunk_tokens_of(config: ModelConfig, window: int, num_sinks: int) -> int:
    """Tokens at once of a window with sinks: no more than have positions behind those that are kept."""
    return min(MAX_CHUNK_TOKENS, config.max_positions - (num_sinks + window - 1))
