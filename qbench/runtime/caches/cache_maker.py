"""`CacheMaker`: caches of one model, for any layout, policy and KV format."""

from collections.abc import Callable
from dataclasses import replace

from qbench.policies.oracle import Recorder
from qbench.run.cache_spec import DEFAULT_CACHE, DENSE, CacheSpec, check_cache
from qbench.run.choices import CPU, KERNEL
from qbench.runtime.attention.in_torch import impl_of
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.kinds import SINKS, TOKEN_IDS, plan_cache, plan_for
from qbench.runtime.caches.places.places import check_sizes
from qbench.runtime.caches.plan import CacheNeeds, CachePlan
from qbench.runtime.caches.rules import Asked
from qbench.runtime.caches.storage.latent_format import uncached_latents
from qbench.runtime.prefill_tally import PrefillTally
from quant.kv import KVScheme
from quant.models import ModelConfig


class CacheMaker:
    """Caches of one model.

    scheme   format of keys and values; None: float32
    impl     one of `attention.in_torch.ATTEND`: on torch; others: on the kernels if these have the format
    spec     layout and policy of caches for which no other is given
    attention  the user's choice of attention_choice.ATTENTIONS, which holds for every cache; None: as `impl` says
    needs    parts of the model that its caches read
    raises   InputError for a policy, a pattern or an attention that the model or its KV format cannot have
    """

    def __init__(
        self,
        config: ModelConfig,
        scheme: KVScheme | None,
        impl: str,
        spec: CacheSpec = DEFAULT_CACHE,
        attention: str | None = None,
        needs: CacheNeeds | None = None,
    ) -> None:
        self.config, self.scheme, self.spec = config, scheme, spec
        self.impl, self.attention = impl, attention
        self.needs = needs or CacheNeeds()
        self.plan(spec)

    def attending(self, attention: str) -> "CacheMaker":
        """The same with attention by another code. raises InputError as for a new one"""
        return self._like(self.scheme, self.spec, attention)

    def of_spec(self, spec: CacheSpec) -> "CacheMaker":
        """The same with another layout and policy. raises InputError as for a new one"""
        return self._like(self.scheme, spec, self.attention)

    def of_scheme(self, scheme: KVScheme) -> "CacheMaker":
        """The same with keys and values in another format. raises InputError as for a new one"""
        return self._like(scheme, self.spec, self.attention)

    def _like(self, scheme: KVScheme | None, spec: CacheSpec, attention: str | None) -> "CacheMaker":
        return CacheMaker(self.config, scheme, self.impl, spec, attention, replace(self.needs, tally=PrefillTally()))

    def plan(
        self, spec: CacheSpec, mode: str | None = None, *, reads_once: bool = False, in_engine: bool = False
    ) -> CachePlan:
        """The decision about a cache; arguments as of `Asked`. raises InputError for one that the model cannot have"""
        check_cache(spec, CPU, self.attention)
        impl = impl_of(self.attention, self.impl)
        return plan_cache(Asked(self.config, self.scheme, spec, self.attention, mode, reads_once, in_engine, impl))

    def new(self, spec: CacheSpec | None, batch: int, capacity: int, mode: str | None = None) -> Cache:
        """An empty cache.

        mode     of latent attention; a cache that holds tokens has modes, unless its policy is sinks
        raises   InputError for impossible sizes, and for a mode or a policy that the model or the layout cannot have
        """
        plan = self.plan(spec or self.spec, mode, reads_once=True)
        check_sizes(batch, capacity)
        return plan.build(self.needs, batch, capacity)

    def foreseeing(self, read: Callable[[Cache], object], batch: int) -> Cache:
        """A cache of a policy that needs the future; `read` passes the text through a cache that holds all of it."""
        asked, recorder, capacity = self.plan(self.spec).asked, Recorder(), self.config.max_positions
        read(plan_for(asked, recorder).build(self.needs, batch, capacity))
        return plan_for(asked, asked.policy.informed(recorder)).build(self.needs, batch, capacity)

    def uncached(self, batch: int, num_tokens: int) -> Cache:
        """Keeps nothing; keys and values pass through the format, and a query sees the same tokens as in the cache.

        If the kernels are chosen, a cache of them keeps the tokens, because they read nothing else. A prefill pattern
        also reads them from a cache.
        """
        # A whole text passes at once, unless tokens are evicted or chosen between forward passes.
        plan = self.plan(replace(self.spec, prefill_chunk=None))
        if plan.kind is SINKS:
            cache = SINKS.at_once(plan, batch)
        elif not plan.policy.position_only:
            return self.new(self.spec.for_quality(), batch, num_tokens)
        elif self.attention == KERNEL or self.spec.prefill != DENSE:
            return plan.build(self.needs, batch, num_tokens)
        else:
            cache = TOKEN_IDS.at_once(plan, batch, uncached_latents(self.config, self.scheme))
        cache.rules = plan.rules
        return cache
