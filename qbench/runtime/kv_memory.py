"""Bytes of keys and values: of a token, and of a cache with any layout and policy."""

from bisect import bisect_right
from functools import partial

from qbench.policies.retrieval import RetrievalPolicy
from qbench.run.cache_spec import DEFAULT_CACHE, NONE, PAGED, CacheSpec
from qbench.runtime.attention.in_torch import is_in_torch
from qbench.runtime.caches.places.owned_pages import window_pages
from qbench.runtime.caches.places.window_pages import sink_slots, window_slots
from qbench.runtime.caches.plan import MAX_CHUNK_TOKENS, Kind, plan_cache
from qbench.runtime.caches.policy.growth import policies_of_layers, sizes_after
from qbench.runtime.caches.rules import Asked, has_modes
from qbench.runtime.caches.storage.kernel_storage import has_store
from qbench.runtime.caches.storage.kv_storage import BLOCK_TOKENS, held_tokens
from qbench.runtime.caches.storage.latent_format import chosen_latents
from qbench.runtime.caches.storage.residual_storage import residual_store_bytes
from qbench.runtime.caches.storage.slot_side import held_bytes
from qbench.runtime.caches.view.sink_view import turns_with_text
from qbench.runtime.workspace import FLOAT_BYTES
from quant.kv import KVFormat, KVScheme
from quant.models import ModelConfig
from quant.present import present


def kv_bytes_per_token(config: ModelConfig, scheme: KVScheme | None = None, mode: str | None = None) -> float:
    """Keys and values of one token over all layers.

    scheme   their format, None: float32
    mode     of latent attention, None: as a cache would choose
    """
    mode, latents = chosen_latents(config, scheme, mode)
    if latents is not None:
        return config.num_layers * latents.row_bytes(present(config.mla))
    return _heads_bytes(config, scheme, in_stores=mode is None and scheme is not None and has_store(config, scheme))


class CacheMemory:
    """Memory of a model's cache.

    spec      layout and policy
    bytes_per_token  of all layers; with a residual, of a token that is encoded
    raises    InputError for a policy that the model cannot have
    """

    def __init__(
        self, config: ModelConfig, scheme: KVScheme | None, impl: str = "auto", spec: CacheSpec = DEFAULT_CACHE
    ) -> None:
        self.plan = plan = plan_cache(Asked(config, scheme, spec))
        self.spec, self.config, self.format = spec, config, None if scheme is None else scheme.format
        keeps = plan.kind in (Kind.KEPT, Kind.CHOSEN, Kind.CHOSEN_IN_TIERS)
        self.policy = plan.policy if keeps else None
        # SlotGroups, which keep the tokens of a policy in such a format, grow by single tokens.
        self._groups = self.format if plan.has_groups else None
        self.sinks = plan.span.sinks
        self.keeps_latents = has_modes(spec) and chosen_latents(config, scheme)[1] is not None
        if not self.keeps_latents:
            scheme = plan.scheme
        in_torch = is_in_torch(impl) or spec.layout == NONE or self.keeps_latents
        in_torch |= self._groups is not None or (self.sinks > 0 and turns_with_text(config))
        self.in_stores = not in_torch and has_store(config, scheme)
        in_pages = plan.kind not in (Kind.ALL, Kind.TIERS, Kind.TOKEN_IDS)
        if in_pages and not self.keeps_latents:
            self.bytes_per_token = _heads_bytes(config, scheme, in_stores=self.in_stores)
        else:
            self.bytes_per_token = 0 if spec.layout == NONE else kv_bytes_per_token(config, scheme)

    @property
    def residual(self) -> KVFormat | None:
        """The format, if it keeps recent tokens in float16."""
        return self.format if self.format is not None and self.format.residual else None

    def mean_bytes_per_token(self, context: int) -> float:
        """Mean over the tokens of one sequence; as `bytes_per_token`, unless a residual takes more."""
        if self.residual is None or not self.bytes_per_token:
            return self.bytes_per_token
        return self._layers_bytes(self.residual, context) / context

    def num_tokens_in(self, room: int) -> int:
        """Tokens of one sequence that fit into so many bytes."""
        most = max(0, int(room // self.bytes_per_token))
        if self.residual is None:
            return most
        return bisect_right(range(most + 1), room, key=partial(self._layers_bytes, self.residual)) - 1

    def _residual_bytes(self, fmt: KVFormat, context: int) -> float:
        """Bytes that a cache with room for one sequence takes."""
        if not self.in_stores:
            return self._layers_bytes(fmt, context)
        config = self.config
        return config.num_layers * residual_store_bytes(fmt, context, config.num_kv_heads, config.head_dim)

    def _layers_bytes(self, fmt: KVFormat, num_tokens: int) -> float:
        """Bytes of the tokens of one sequence in all layers."""
        config = self.config
        sizes = (config.num_kv_heads, config.head_dim, config.value_dim)
        return config.num_layers * fmt.size_bytes(num_tokens, *sizes)

    def _index_bytes(self, policy: RetrievalPolicy, context: int) -> int:
        """Bytes of one sequence's summaries, by which queries choose their blocks."""
        config, num_layers = self.config, sum(not rule.window for rule in self.plan.rules)
        return num_layers * policy.index_bytes(context, config.num_kv_heads, config.head_dim)

    def _groups_bytes(self, fmt: KVFormat, context: int, steps: int) -> float:
        """Bytes of one sequence whose tokens a policy keeps."""
        config = self.config
        sizes = (config.num_kv_heads, (config.head_dim, config.value_dim))
        if self.policy is None:  # sinks
            chunk = self.tokens_per_forward(context, None)
            held = sink_slots(context - steps, steps, chunk, present(self.plan.span.window), self.sinks)
            return config.num_layers * held_bytes(fmt, held, *sizes)
        found, policies = 0.0, policies_of_layers(config, self.policy)
        for layer, policy in enumerate(policies):
            num_tokens = sum(policy.slots_after(context - steps, steps, layer, len(policies)))
            found += held_bytes(fmt, min(num_tokens, context), *sizes, is_bound=policy.per_head_lengths)
        return found

    def tokens_per_forward(self, context: int, prefill: int | None) -> int:
        """Most tokens of a sequence per forward pass, if a prompt is given in parts of `prefill` tokens; None: all at
        once.
        """
        if self.spec.layout == NONE:
            return context
        return min(tokens for tokens in (context, prefill, self.plan.chunk) if tokens)

    def size_bytes(self, context: int, batch: int, steps: int = 0) -> int:
        """For `batch` sequences of `context` tokens, the last `steps` of which came one at a time."""
        if self.policy is not None and self.policy.retrieval is not None:
            kept = held_tokens(context) * self.bytes_per_token
            return round(batch * (kept + self._index_bytes(self.policy.retrieval, context)))
        if self._groups is not None:
            return round(batch * self._groups_bytes(self._groups, context, steps))
        if self.policy is not None:
            policies = policies_of_layers(self.config, self.policy)
            slots = sizes_after(policies, context - steps, steps, self.config.num_kv_heads)
            return round(batch * sum(slots) * self.bytes_per_token / len(slots))
        if self.plan.kind is Kind.SINKS:
            held = held_tokens(min(context, window_slots(present(self.plan.span.window), self.sinks)))
        elif self.plan.kind is Kind.WINDOW:
            near = window_pages(self.plan.longest_window, MAX_CHUNK_TOKENS, BLOCK_TOKENS) * BLOCK_TOKENS
            far_share = sum(not rule.window for rule in self.plan.rules) / len(self.plan.rules)
            held = near + far_share * (held_tokens(context) - near)
        else:
            held = held_tokens(context) if self.in_stores or self.spec.layout == PAGED else context
            if self.residual is not None:
                return round(batch * self._residual_bytes(self.residual, context))
        return round(batch * held * self.bytes_per_token)


def _heads_bytes(config: ModelConfig, scheme: KVScheme | None, *, in_stores: bool) -> float:
    """Bytes of every KV head's own key and value; in_stores: of cpu_kernels, whose values are as wide as keys"""
    value_dim = config.head_dim if in_stores else config.value_dim
    if scheme is None:
        return config.num_layers * config.num_kv_heads * (config.head_dim + value_dim) * FLOAT_BYTES
    return config.num_layers * scheme.format.bytes_per_token(config.num_kv_heads, config.head_dim, value_dim)
