"""ShareMaker: caches of a model whose lanes keep different tokens of each sequence, under sp."""

from dataclasses import dataclass, replace
from functools import partial

from qbench.prefill.star import Star
from qbench.run.cache_spec import DENSE, STATIC, CacheSpec, check_cache
from qbench.run.choices import EXACT
from qbench.runtime.attention.in_torch import is_in_torch
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.cache_maker import CacheMaker
from qbench.runtime.caches.kinds import All
from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.places.places import OwnPages
from qbench.runtime.caches.plan import CacheNeeds, CachePlan
from qbench.runtime.caches.storage.grouped_storage import Groups
from qbench.runtime.caches.storage.kv_storage import BLOCK_TOKENS, KVStorage
from qbench.runtime.caches.storage.share import Share
from qbench.runtime.caches.storage.share_groups import ShareGroups
from qbench.runtime.caches.storage.storages import check_heads, layer_scales, make_storage
from qbench.runtime.caches.view.share_view import ShareView, StarView
from qbench.runtime.parallel.ranks import Ranks
from qbench.runtime.prefill_tally import PrefillTally
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig


@dataclass(frozen=True)
class Shares(All):
    """All tokens, of which each lane of `ranks` keeps a share"""

    ranks: Ranks

    def build(self, plan: CachePlan, needs: CacheNeeds, batch: int, capacity: int) -> Cache:
        config, spec, ranks = plan.config, plan.spec, self.ranks
        share = Share(ranks.lane, ranks.layout.sp)
        view, storage_of = ShareView(share, ranks), partial(_storage, plan, share)
        if spec.prefill != DENSE:
            pattern = spec.make_pattern()
            assert isinstance(pattern, Star)
            share = replace(share, block=pattern.part_tokens(capacity))
            view = StarView(config, pattern, share, ranks, needs.tally, storage_of)
        own = max(share.count(capacity), BLOCK_TOKENS)
        storages = [storage_of(layer, batch, own) for layer in range(config.num_layers)]
        cache = KVCache(config, OwnPages(storages, config.max_positions), view=view)
        cache.max_held = capacity if spec.layout == STATIC else None
        return cache


class ShareMaker(CacheMaker):
    """ranks  their lanes keep the shares"""

    def __init__(
        self,
        config: ModelConfig,
        scheme: KVScheme | None,
        impl: str,
        spec: CacheSpec,
        attention: str | None,
        needs: CacheNeeds,
        *,
        ranks: Ranks,
    ) -> None:
        self.ranks = ranks
        super().__init__(config, scheme, impl, spec, attention, needs)

    def attending(self, attention: str) -> "CacheMaker":
        raise InputError(f"a loaded model on {self.ranks.layout} has one attention; load it again for {attention}")

    def _like(self, scheme: KVScheme | None, spec: CacheSpec, attention: str | None) -> "CacheMaker":
        needs = replace(self.needs, tally=PrefillTally())
        return ShareMaker(self.config, scheme, self.impl, spec, attention, needs, ranks=self.ranks)

    def plan(
        self, spec: CacheSpec, mode: str | None = None, *, reads_once: bool = False, in_engine: bool = False
    ) -> CachePlan:
        check_cache(spec, layout=self.ranks.layout)
        if self.config.mla is not None:
            raise InputError(
                f"sp={self.ranks.layout.sp} does not divide the latents of a {self.config.architecture.name} yet; "
                "use pp"
            )
        plan = super().plan(spec, mode, reads_once=reads_once, in_engine=in_engine)
        return replace(plan, kind=Shares(self.ranks))

    def uncached(self, batch: int, num_tokens: int) -> Cache:
        return self.plan(replace(self.spec, prefill_chunk=None)).build(self.needs, batch, num_tokens)


def _storage(plan: CachePlan, share: Share, layer: int, batch: int, num_slots: int) -> KVStorage:
    """Memory for a share of a layer's tokens"""
    config, scheme, impl = plan.config, plan.asked.scheme, plan.asked.impl
    if scheme is not None and scheme.format.token_group > 1:
        check_heads(config, scheme)
        sizes = (config.num_kv_heads, config.head_dim, config.value_dim)
        groups = Groups(scheme.format, layer_scales(scheme, layer), batch, num_slots, sizes)
        return ShareGroups(groups, share)
    in_kernels, exact = not is_in_torch(impl), impl == EXACT
    return make_storage(config, scheme, layer, batch, num_slots, in_kernels=in_kernels, exact=exact)


def sharing(maker: CacheMaker, ranks: Ranks) -> ShareMaker:
    """The maker of the same model's caches, whose tokens the lanes of `ranks` share"""
    about = (maker.config, maker.scheme, maker.impl, maker.spec, maker.attention, maker.needs)
    return ShareMaker(*about, ranks=ranks)
