"""`CacheMaker`: caches of one model, for any layout, policy and KV format."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from qbench.cache_spec import NONE, PAGED, STATIC, CacheSpec
from qbench.policies import CachePolicy, TokenKinds
from qbench.policies.oracle import Oracle, Recorder
from qbench.policies.positions import Full, Sinks, Window
from qbench.runtime.caches.cache import Cache, DenseCache, NoCache
from qbench.runtime.caches.head_storage import HeadStorage
from qbench.runtime.caches.kernel_cache import BLOCK_TOKENS, STORES, KernelCache, has_store, make_store
from qbench.runtime.caches.kernel_sinks import KernelSinkCache, has_kernel_sinks
from qbench.runtime.caches.kernel_storage import KernelStorage
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
from qbench.runtime.caches.residual_cache import ResidualCache
from qbench.runtime.caches.sink_cache import SinkCache, check_sinks
from quant.errors import InputError
from quant.kv import KVScheme
from quant.kv.codec import Codec
from quant.kv.floats import Floats
from quant.models import AttentionRule, ModelConfig
from quant.present import present

DEFAULT_CACHE = CacheSpec()
# Tokens that a window cache takes at once: enough to fill the tiles of any product many times over, and little memory
# beside a usual window of 4096.
MAX_CHUNK_TOKENS = 256


class CacheMaker:
    """Caches of one model.

    scheme   format of keys and values; None: float32
    impl     "reference": on torch; others: on the kernels where those have the format
    spec     layout and policy of caches for which no other is given
    token_kinds  finds special tokens and punctuation when a policy wants to know them
    """

    def __init__(
        self,
        config: ModelConfig,
        scheme: KVScheme | None,
        impl: str,
        spec: CacheSpec = DEFAULT_CACHE,
        token_kinds: Callable[[], TokenKinds] = TokenKinds,
    ) -> None:
        self.config, self.scheme, self.impl, self.spec = config, scheme, impl, spec
        self.token_kinds = token_kinds

    def new(self, spec: CacheSpec | None, batch: int, capacity: int, mode: str | None = None) -> Cache:
        """An empty cache.

        mode     of latent attention; layouts dynamic, static and paged, and policies full and window have modes
        raises   InputError for impossible sizes, and for a mode or a policy that the model or the layout cannot have
        """
        spec = self.spec if spec is None else spec
        if batch < 1 or capacity < 1:
            raise InputError(f"cache of batch {batch} and capacity {capacity}, expected at least 1 of each")
        if mode is not None and not has_modes(spec):
            raise InputError(
                f"cache {spec} has no modes; a mode goes with cache dynamic, static or paged, and policy full or window"
            )
        cache = self._new(spec, batch, capacity, mode)
        if spec.prefill_chunk is not None:
            cache.max_chunk_tokens = min(spec.prefill_chunk, cache.max_chunk_tokens or spec.prefill_chunk)
        return cache

    def _new(self, spec: CacheSpec, batch: int, capacity: int, mode: str | None) -> Cache:
        match spec.make_policy():
            case Sinks() as sinks:
                return self._sinks(batch, sinks, uncached=False, mode=mode)
            case Window(tokens):
                return self._window(batch, capacity, tokens, mode)
            case policy if not isinstance(policy, Full):
                return self._of_policy(batch, policy)
        if spec.layout == NONE:
            return RecomputeCache(self.config, self._uncached(batch))
        if spec.layout == PAGED:
            return self._paged(batch, capacity, mode)
        cache = self._dynamic(batch, capacity, mode)
        cache.max_held = min(capacity, self.config.max_positions) if spec.layout == STATIC else None
        return cache

    def foreseeing(self, read: Callable[[Cache], object], batch: int) -> Cache:
        """A cache of a policy that needs the future; `read` passes the text through a cache that holds all of it."""
        recorder, policy = Recorder(), self.spec.make_policy()
        assert isinstance(policy, Oracle)
        read(self._evicting(batch, recorder))
        return self._evicting(batch, policy.informed(recorder))

    def uncached(self, batch: int) -> Cache:
        """Keeps nothing; keys and values pass through the format, and a query sees what it would in the cache."""
        policy = self.spec.make_policy()
        if isinstance(policy, Sinks):
            return self._sinks(batch, policy, uncached=True, mode=None)
        if not policy.position_only:
            return self._evicting(batch, policy)
        _, rows = (None, None) if self.scheme is None else chosen_latents(self.config, self.scheme)
        cache = self._uncached(batch) if rows is None else LatentRows(self.config, rows, batch)
        if isinstance(policy, Window):
            cache.rules = window_rules(self.config, policy.tokens)
        return cache

    def _evicting(self, batch: int, policy: CachePolicy) -> PolicyCache:
        """Evicts between forward passes, so that the text takes several."""
        cache = self._of_policy(batch, policy)
        cache.max_chunk_tokens = self.spec.for_quality().prefill_chunk
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
            if scheme is not None and scheme.format.residual:
                return ResidualCache(config, scheme, batch, capacity)
            return KernelCache(config, scheme, batch, capacity)
        if scheme is not None:
            return QuantizedCache(config, scheme, batch, capacity)
        return DenseCache(config, batch, capacity)

    def _paged(self, batch: int, capacity: int, mode: str | None) -> Cache:
        num_pages = batch * -(-min(capacity, self.config.max_positions) // BLOCK_TOKENS)
        pool = PagePool(self.config, self.scheme, num_pages, impl=self.impl, mode=mode)
        return paged_cache(pool, [GrowingSequence(pool) for _ in range(batch)])

    def _of_policy(self, batch: int, policy: CachePolicy) -> PolicyCache:
        if policy.needs_future:
            raise InputError(
                f"policy {policy.name} reads a text twice, so the text must be known; it is for `qbench eval` on a text"
            )
        policy = policy_for(policy, self.config, self.scheme)
        storages = [self._storage(layer, batch, policy) for layer in range(self.config.num_layers)]
        cache = PolicyCache(self.config, storages, policy, batch)
        if policy.reads_token_kinds:
            cache.token_kinds = self.token_kinds()
        return cache

    def _storage(self, layer: int, batch: int, policy: CachePolicy) -> KVStorage:
        if policy.per_head_lengths and not self.config.attention_rule(layer).window:
            heads = [self._of_head(g) for g in range(self.config.num_kv_heads)]
            return HeadStorage([[head._slots(layer, 1) for head in heads] for _ in range(batch)])
        return self._slots(layer, batch)

    def _slots(self, layer: int, batch: int) -> KVStorage:
        if self.impl != "reference" and has_store(self.config, self.scheme):
            store = make_store(self.config, self.scheme, layer, batch, BLOCK_TOKENS)
            return KernelStorage(store, batch, self.config.num_kv_heads, self.config.head_dim)
        scales = (None, None) if self.scheme is None else layer_scales(self.scheme, layer)
        return TorchStorage(batch, BLOCK_TOKENS, floats_or_codecs(self.scheme), scales)

    def _of_head(self, g: int) -> "CacheMaker":
        """As if the model had this KV head alone."""
        scheme = self.scheme
        if scheme is not None and scheme.k_scale is not None and scheme.v_scale is not None:
            own = slice(g, g + 1) if scheme.k_scale.shape[1] > 1 else slice(None)
            scheme = replace(scheme, k_scale=scheme.k_scale[:, own], v_scale=scheme.v_scale[:, own])
        return CacheMaker(replace(self.config, num_kv_heads=1), scheme, self.impl)

    def _window(self, batch: int, capacity: int, window: int | None, mode: str | None) -> Cache:
        rules = window_rules(self.config, window)
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

    def _sinks(self, batch: int, policy: Sinks, *, uncached: bool, mode: str | None) -> Cache:
        """uncached: of a whole text at once"""
        window = policy.window
        check_sinks(self.config, window, policy.sinks)
        max_chunk_tokens = max_chunk_tokens_of(self.config, window, policy.sinks)
        most_pages = window_pages(window, max_chunk_tokens, BLOCK_TOKENS)
        num_pages = batch * (most_pages + -(-policy.sinks // BLOCK_TOKENS))
        in_kernels = self.impl != "reference" and has_kernel_sinks(self.config, self.scheme)
        pool = PagePool(self.config, self.scheme, num_pages, impl="auto" if in_kernels else "reference", mode=mode)
        if uncached:
            sequences = [GrowingSequence(pool) for _ in range(batch)]
        else:
            sequences = [WindowSequence(pool, window, most_pages, policy.sinks) for _ in range(batch)]
        cache = (KernelSinkCache if in_kernels else SinkCache)(pool, sequences, window, policy.sinks)
        cache.rules = window_rules(self.config, window)
        cache.max_chunk_tokens = None if uncached else max_chunk_tokens
        return cache


def has_modes(spec: CacheSpec) -> bool:
    """Whether the cache of a model with latent attention keeps latents, and attends to them by a mode."""
    return spec.layout != NONE and isinstance(spec.make_policy(), Full | Window)


def policy_for(policy: CachePolicy, config: ModelConfig, scheme: KVScheme | None) -> CachePolicy:
    """The policy for a model whose keys and values are kept in this format.

    raises   InputError for options that the model or the format cannot have
    """
    codecs = floats_or_codecs(scheme)
    if any(codec.token_group > 1 for codec in codecs):
        raise InputError(
            f"{present(scheme).format.name} encodes several tokens together, of which a policy may keep only some; "
            "choose a format that encodes each token by itself"
        )
    if scheme is not None and policy.per_head and STORES.get(scheme.format.name, ("", ""))[1] == "per_tensor":
        raise InputError(
            f"{scheme.format.name} has one scale for all heads of a token, but policy {policy.name} may keep it in "
            "only some of them; choose a format with a scale per head, as kv-fp8"
        )
    widths = zip(codecs, (config.head_dim, config.value_dim), strict=True)
    token_bytes = sum(codec.bytes_per_token(config.num_kv_heads, width) for codec, width in widths)
    return policy.for_model(config.num_layers, config.num_layers * token_bytes)


def floats_or_codecs(scheme: KVScheme | None) -> tuple[Codec, Codec]:
    """Codecs of keys and values."""
    if scheme is not None:
        return scheme.format.keys, scheme.format.values
    floats = Floats(torch.float32)
    return floats, floats


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
