"""`CachePlan`: a cache that a model can have, decided once; it builds the cache, its pool, and predicts its bytes."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property

import torch
from torch import Tensor

from qbench.policies import CachePolicy, TokenKinds
from qbench.policies.policy import Span
from qbench.run.cache_spec import NONE, CacheSpec
from qbench.runtime.attention.in_torch import is_in_torch
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.places.layered_sequence import pages_per_row
from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.caches.policy.model_policy import scheme_under
from qbench.runtime.caches.rules import Asked
from qbench.runtime.caches.storage.kernel_storage import has_store
from qbench.runtime.caches.storage.latent_format import chosen_latents
from qbench.runtime.caches.storage.storages import of_head
from qbench.runtime.caches.view.sink_view import turns_with_text
from qbench.runtime.prefill_tally import PrefillTally
from quant.kv import KVFormat, KVScheme
from quant.models import AttentionRule, ModelConfig
from quant.present import present


@dataclass
class CacheNeeds:
    """Parts of a model that its caches read.

    token_kinds  finds special tokens and punctuation when a policy wants to know them
    expand       of each layer, `LatentAttention.expanded`, set once the layers are loaded
    tally        counts of the prefills under a pattern, over all caches
    """

    token_kinds: Callable[[], TokenKinds] = TokenKinds
    expand: Sequence[Callable[[Tensor], tuple[Tensor, Tensor]]] = ()
    tally: PrefillTally = field(default_factory=PrefillTally)


class Keeps(Enum):
    """The memory of a layer. One with a recurrent state or a convolution would be a member of its own."""

    LATENTS = auto()  # one row per token, which all heads share
    HEADS = auto()  # keys and values of every head


class Kind(ABC):
    """How a cache keeps the tokens of its sequences: `caches.kinds` has one of each.

    One class both builds and predicts, so that a prediction is of the memory that is taken.

    has_budget    whether the policy gets its budget in tokens
    drops_tokens  whether single tokens leave their slots
    """

    has_budget = False
    drops_tokens = False

    @abstractmethod
    def holds(self, asked: Asked) -> bool:
        """Whether it is the kind of this cache, if it is of no kind before it in KINDS"""

    def chunk(self, asked: Asked) -> int | None:
        """Most tokens of a sequence that it takes at once; None: any number"""
        del asked
        return None

    @abstractmethod
    def build(self, plan: "CachePlan", needs: CacheNeeds, batch: int, capacity: int) -> Cache:
        """raises InputError for sizes that this kind cannot have"""

    @abstractmethod
    def size_bytes(self, plan: "CachePlan", context: int, steps: int) -> float:
        """Bytes of one sequence of `context` tokens, the last `steps` of which came one at a time"""


@dataclass(frozen=True)
class CachePlan:
    """A cache that the model can have.

    policy  with its budget in tokens
    rules   attention of each layer
    chunk   most tokens of a sequence per forward pass; None: any number
    """

    asked: Asked
    kind: Kind
    policy: CachePolicy
    rules: list[AttentionRule]
    chunk: int | None

    def build(self, needs: CacheNeeds, batch: int, capacity: int) -> Cache:
        """An empty cache with room for `capacity` tokens of each sequence. raises InputError for impossible sizes"""
        cache = self.kind.build(self, needs, batch, min(capacity, self.config.max_positions))
        cache.rules, cache.max_chunk_tokens = self.rules, self.chunk
        return cache

    def pool(self, num_pages: int, page_size: int, num_sequences: int) -> PagePool:
        """A pool for `PooledCaches` with room for `num_pages` pages of all layers and heads.

        num_sequences  most sequences at once
        raises   InputError for a KV format that pages of the model's policy cannot have
        """
        config, scheme, policy = self.config, self.asked.scheme if self.config.mla else self.scheme, self.policy
        is_grouped = self.asked.joins_tokens and not self.asked.keeps_rows
        per_row = pages_per_row(policy, config, by_sequence=is_grouped)
        layers = range(config.num_layers // per_row)
        if policy.per_head_lengths and config.mla is None:
            (config, _), layers = of_head(config, scheme, 0), range(1)
        return PagePool(
            config,
            scheme,
            num_pages * per_row,
            page_size,
            impl=self.asked.impl,
            layers=layers,
            num_sequences=num_sequences if is_grouped else None,
            evicts=is_grouped and not policy.is_full,
        )

    def size_bytes(self, context: int, batch: int, steps: int = 0) -> int:
        """For `batch` sequences of `context` tokens, the last `steps` of which came one at a time."""
        return round(batch * self.kind.size_bytes(self, context, steps))

    @property
    def config(self) -> ModelConfig:
        return self.asked.config

    @property
    def spec(self) -> CacheSpec:
        return self.asked.spec

    @property
    def span(self) -> Span:
        return self.asked.span

    @cached_property
    def keeps(self) -> list[Keeps]:
        """The memory of each layer"""
        _, rows = chosen_latents(self.config, self.asked.scheme, self.asked.mode)
        return [Keeps.HEADS if rows is None else Keeps.LATENTS] * self.config.num_layers

    @property
    def keeps_latents(self) -> bool:
        return self.asked.keeps_rows

    @property
    def scheme(self) -> KVScheme | None:
        """The KV format as the heads of the cache have it; None: float32"""
        scheme = self.asked.scheme
        return scheme_under(self.policy, scheme) if self.kind.drops_tokens else scheme

    @property
    def format(self) -> KVFormat | None:
        """None: float32"""
        return None if self.asked.scheme is None else self.asked.scheme.format

    @property
    def has_groups(self) -> bool:
        """Whether slots of tokens that are encoded together lose single ones"""
        return self.asked.joins_tokens and self.kind.drops_tokens

    @cached_property
    def in_stores(self) -> bool:
        """Whether stores of cpu_kernels hold the tokens, in whole blocks"""
        in_torch = is_in_torch(self.asked.impl) or self.spec.layout == NONE or self.keeps_latents or self.has_groups
        in_torch |= self.asked.latent_mode is not None or (self.policy.has_sinks and turns_with_text(self.config))
        return not in_torch and has_store(self.config, self.scheme)

    @property
    def longest_window(self) -> int:
        """Tokens of the window of the layer that sees most; 0: no layer has a window"""
        return max(rule.window for rule in self.rules)

    @cached_property
    def bytes_per_token(self) -> float:
        """Bytes of a token in all layers; with a residual, of one that is encoded"""
        if self.spec.layout == NONE:
            return 0
        return sum(count * self._layer_bytes(keeps) for keeps, count in Counter(self.keeps).items())

    def _layer_bytes(self, keeps: Keeps) -> float:
        """Bytes of a token in one layer"""
        config, scheme = self.config, self.scheme
        if keeps is Keeps.LATENTS:
            _, rows = chosen_latents(config, self.asked.scheme, self.asked.mode)
            return present(rows).row_bytes(present(config.mla))
        value_dim = config.head_dim if self.in_stores else config.value_dim  # stores have values as wide as keys
        if scheme is None:
            return config.num_kv_heads * (config.head_dim + value_dim) * torch.float32.itemsize
        return scheme.format.bytes_per_token(config.num_kv_heads, config.head_dim, value_dim)

    @property
    def residual(self) -> KVFormat | None:
        """The format, if it keeps recent tokens in float16."""
        return self.format if self.format is not None and self.format.residual else None

    def mean_bytes_per_token(self, context: int) -> float:
        """Mean over the tokens of one sequence; as `bytes_per_token`, unless a residual takes more."""
        if self.residual is None or not self.bytes_per_token:
            return self.bytes_per_token
        return self.encoded_bytes(context) / context

    def num_tokens_in(self, room: int) -> int:
        """Tokens of one sequence that fit into `room` bytes."""
        most = max(0, int(room // self.bytes_per_token))
        if self.residual is None:
            return most
        return bisect_right(range(most + 1), room, key=self.encoded_bytes) - 1

    def encoded_bytes(self, num_tokens: int) -> float:
        """Bytes of the tokens of one sequence in all layers, with its residual."""
        config, fmt = self.config, self.format
        assert fmt is not None
        return config.num_layers * fmt.size_bytes(num_tokens, config.num_kv_heads, config.head_dim, config.value_dim)

    def tokens_per_forward(self, context: int, prefill: int | None) -> int:
        """Most tokens of a sequence per forward pass, if a prompt is given in parts of `prefill` tokens; None: all at
        once.
        """
        if self.spec.layout == NONE:
            return context
        return min(tokens for tokens in (context, prefill, self.chunk) if tokens)
