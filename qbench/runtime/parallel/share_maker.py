"""ShareMaker: caches of a model whose lanes keep different tokens of each sequence, under sp."""

from collections.abc import Callable
from dataclasses import replace

from qbench.policies import TokenKinds
from qbench.prefill.star import Star
from qbench.run.cache_spec import DENSE, STATIC, CacheSpec, check_cache
from qbench.run.choices import EXACT
from qbench.runtime.attention.in_torch import is_in_torch
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.cache_maker import CacheMaker
from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.places.places import OwnPages
from qbench.runtime.caches.plan import CachePlan, plan_cache
from qbench.runtime.caches.rules import Asked
from qbench.runtime.caches.storage.grouped_storage import Groups
from qbench.runtime.caches.storage.kv_storage import BLOCK_TOKENS, KVStorage
from qbench.runtime.caches.storage.share import Share
from qbench.runtime.caches.storage.share_groups import ShareGroups
from qbench.runtime.caches.storage.storages import check_heads, layer_scales, make_storage
from qbench.runtime.caches.view.share_view import ShareView, StarView
from qbench.runtime.parallel.ranks import Ranks
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig


class ShareMaker(CacheMaker):
    """ranks  their lanes keep the shares"""

    def __init__(
        self,
        config: ModelConfig,
        scheme: KVScheme | None,
        impl: str,
        spec: CacheSpec,
        token_kinds: Callable[[], TokenKinds],
        attention: str | None,
        *,
        ranks: Ranks,
    ) -> None:
        super().__init__(config, scheme, impl, spec, token_kinds, attention)
        if config.mla is not None:
            raise InputError(
                f"sp={ranks.layout.sp} does not divide the latents of a {config.architecture.name} yet; use pp"
            )
        self.ranks, self.share = ranks, Share(ranks.lane, ranks.layout.sp)
        check_cache(spec, layout=ranks.layout)

    def attending(self, attention: str) -> "CacheMaker":
        raise InputError(f"a loaded model on {self.ranks.layout} has one attention; load it again for {attention}")

    def _like(self, scheme: KVScheme | None, spec: CacheSpec, attention: str | None) -> "CacheMaker":
        return ShareMaker(self.config, scheme, self.impl, spec, self.token_kinds, attention, ranks=self.ranks)

    def _build(self, plan: CachePlan, batch: int, capacity: int) -> Cache:
        check_cache(plan.asked.spec, layout=self.ranks.layout)
        return super()._build(plan, batch, capacity)

    def uncached(self, batch: int, num_tokens: int) -> Cache:
        spec = replace(self.spec, prefill_chunk=None)
        return self._build(plan_cache(Asked(self.config, self.scheme, spec, self.attention)), batch, num_tokens)

    def _all(self, plan: CachePlan, batch: int, capacity: int) -> Cache:
        config, spec = self.config, plan.asked.spec
        share, view = self.share, ShareView(self.share, self.ranks)
        if spec.prefill != DENSE:
            pattern = spec.make_pattern()
            assert isinstance(pattern, Star)
            share = replace(share, block=pattern.part_tokens(capacity))
            view = StarView(config, pattern, share, self.ranks, self.tally, self._share_of)
        own = max(share.count(capacity), BLOCK_TOKENS)
        storages = [self._share_of(layer, batch, own) for layer in range(config.num_layers)]
        cache = KVCache(config, OwnPages(storages, config.max_positions), view=view)
        cache.max_held = capacity if spec.layout == STATIC else None
        return cache

    def _share_of(self, layer: int, batch: int, num_slots: int) -> KVStorage:
        config, scheme = self.config, self.scheme
        if scheme is not None and scheme.format.token_group > 1:
            check_heads(config, scheme)
            sizes = (config.num_kv_heads, config.head_dim, config.value_dim)
            groups = Groups(scheme.format, layer_scales(scheme, layer), batch, num_slots, sizes)
            return ShareGroups(groups, self.share)
        in_kernels, exact = not is_in_torch(self._impl), self._impl == EXACT
        return make_storage(config, scheme, layer, batch, num_slots, in_kernels=in_kernels, exact=exact)


def sharing(maker: CacheMaker, ranks: Ranks) -> ShareMaker:
    """The maker of the same model's caches, whose tokens the lanes of `ranks` share"""
    about = (maker.config, maker.scheme, maker.impl, maker.spec, maker.token_kinds, maker.attention)
    return ShareMaker(*about, ranks=ranks)
