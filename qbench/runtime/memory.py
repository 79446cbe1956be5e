"""Memory a model will take, by part, from its config and tensor table alone."""

from copy import copy
from dataclasses import dataclass

from qbench.run.cache_spec import DEFAULT_CACHE, CacheSpec
from qbench.run.choices import IN_TORCH
from qbench.runtime.attention.in_torch import impl_of
from qbench.runtime.caches.kinds import plan_cache
from qbench.runtime.caches.rules import Asked, check
from qbench.runtime.caches.storage.latent_format import chosen_latents, has_latent_kernels
from qbench.runtime.layers.paths import LAYERS, NET_STEPS, planned_path
from qbench.runtime.weights_memory import WeightsMemory
from qbench.runtime.workspace import FLOAT_BYTES, MAPPED_BYTES, absorbs, torch_attention_bytes, workspace_bytes
from quant.json_data import JsonData
from quant.kv import KVScheme
from quant.models import ModelConfig
from quant.present import present
from quant.source import Source

# Gaps between activations that torch allocates one by one: glibc maps blocks of 32 MiB and more by themselves and keeps
# freed smaller ones, between which blocks of other sizes leave gaps. Heap over live bytes, of ref:mla-moe's prefills
# when all sequences passed at once: of the small ones 1.44 to 1.64 from process to process.
SMALL_BLOCK_GAPS, LARGE_BLOCK_GAPS = 1.55, 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryParts(JsonData):
    """Bytes by part of some sequences of some context.

    weights_bytes, weights_by_format  as stored
    kv_bytes_per_token, kv_bytes      of one sequence, a mean over its tokens; of the whole cache, in the model's KV
                                      format if it names one, else in float32
    resident_bytes                    weights as the runtime holds them: packed, or float32 on the reference path
    workspace_bytes                   activations at their peak, and the last position's logits, with the gaps
                                      that the allocator leaves
    total_bytes                       resident_bytes + kv_bytes + workspace_bytes
    """

    weights_bytes: int
    weights_by_format: dict[str, int]
    kv_bytes_per_token: float
    resident_bytes: int
    kv_bytes: int
    workspace_bytes: int
    total_bytes: int


def predict_memory(
    source: Source,
    context: int,
    batch: int = 1,
    *,
    impl: str = "auto",
    spec: CacheSpec = DEFAULT_CACHE,
    attention: str | None = None,
) -> MemoryParts:
    """The prediction of `MemoryPredictor.at` for one context and batch."""
    return MemoryPredictor(source, impl=impl, spec=spec, attention=attention).at(context, batch)


class MemoryPredictor:
    """Memory of a model at any context and batch; its tensors are read once.

    spec     layout and policy of its cache
    attention  the code that computes it, one of qbench.run.choices; None: the best that the model can have
    raises   InputError for tensors that do not fit the config, and a cache that it cannot have
    """

    def __init__(
        self, source: Source, *, impl: str = "auto", spec: CacheSpec = DEFAULT_CACHE, attention: str | None = None
    ) -> None:
        self.config, self.impl, self.spec = ModelConfig.of(source), impl, spec
        self.attention = attention
        check(Asked(self.config, spec=spec, attention=attention))
        self.weights = WeightsMemory(source, self.config, impl)
        self._keep_in(KVScheme.of(source.config, self.config, source.spec))

    def with_scheme(self, scheme: KVScheme | None) -> "MemoryPredictor":
        """A predictor of the same weights, with keys and values in another format; None: float32."""
        other = copy(self)
        other._keep_in(scheme)
        return other

    def _keep_in(self, scheme: KVScheme | None) -> None:
        config, in_kernels = self.config, self.impl != "reference"
        impl = impl_of(self.attention, self.impl)
        self.cache = plan = plan_cache(Asked(config, scheme, self.spec, impl=impl))
        in_stores = plan.in_stores and not plan.kind.has_budget  # with a policy, a prefill goes layer by layer
        self.path = planned_path(config, is_packed=self.weights.is_packed, in_stores=in_stores)
        self.resident_bytes = self.weights.held_bytes
        if chosen_latents(config, scheme)[1] is not None:
            with_kernels = in_kernels and has_latent_kernels(present(config.mla))
            self.resident_bytes += self.weights.latent_heads_bytes(in_kernels=with_kernels)

    def at(self, context: int, batch: int = 1, prefill: int | None = None, steps: int = 0) -> MemoryParts:
        """Bytes by part for `batch` sequences of `context` tokens.

        prefill  tokens of a sequence that pass at once, None: all
        steps    the last tokens of the context, which came one at a time, after the prompt
        """
        num_tokens = self.cache.tokens_per_forward(context, prefill)
        kv_bytes, workspace = self.cache.size_bytes(context, batch, steps), self.workspace_bytes(num_tokens, batch)
        if self.attention in IN_TORCH:
            workspace += batch * torch_attention_bytes(self.config, num_tokens, context, self.attention)
        return MemoryParts(
            weights_bytes=sum(self.weights.by_format.values()),
            weights_by_format=self.weights.by_format,
            kv_bytes_per_token=self.cache.mean_bytes_per_token(context),
            resident_bytes=self.resident_bytes,
            kv_bytes=kv_bytes,
            workspace_bytes=workspace,
            total_bytes=self.resident_bytes + kv_bytes + workspace,
        )

    def workspace_bytes(self, num_tokens: int, batch: int) -> int:
        """With the gaps that the allocator leaves."""
        latents = self.cache.keeps_latents
        live = workspace_bytes(
            self.config, num_tokens, batch, path=self.path, over_latents=latents, has_sinks=self.cache.policy.has_sinks
        )
        by_latents = self.path is NET_STEPS and latents
        if self.path is LAYERS or (by_latents and absorbs(self.config, num_tokens)):
            return live
        stream = FLOAT_BYTES * batch * num_tokens * self.config.hidden_size
        if by_latents:  # a freed block of the stream, whose place a turn's blocks partly took
            return live + (stream if stream < MAPPED_BYTES else 0)
        return round(live * (SMALL_BLOCK_GAPS if stream < MAPPED_BYTES else LARGE_BLOCK_GAPS))
