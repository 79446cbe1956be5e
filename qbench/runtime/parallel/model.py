"""RankModel: the layers of one rank between those of the others."""

from dataclasses import replace

from torch import Tensor

from qbench.cache_spec import CacheSpec
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.pages import PagePool
from qbench.runtime.caches.step import Step
from qbench.runtime.model import Model
from qbench.runtime.parallel.leading import FOLLOWING, Leading
from qbench.runtime.parallel.ranks import Ranks
from qbench.runtime.parallel.shard import Shard
from qbench.runtime.parallel.traffic import Exchanges


class RankModel(Model):
    """A Model whose call every rank makes with the same tokens, and which returns the same logits to all of them.

    config     of this rank's layers and heads
    exchanges  those between the lanes of this stage, in one forward pass
    leading    on rank 0: the other ranks follow its forward passes; None: every rank makes each call
    """

    ranks: Ranks
    shard: Shard
    exchanges: Exchanges
    leading: Leading | None = None

    def lead(self) -> None:
        """Wait until the other ranks run `follow`, which they do until this one parts from them."""
        self.ranks.meeting.tell(FOLLOWING, "")
        self.leading = Leading(self.ranks)
        self.ranks.before_parting = self.leading.end

    def new_cache(
        self, batch: int = 1, capacity: int = 256, *, spec: CacheSpec | None = None, mode: str | None = None
    ) -> Cache:
        cache = super().new_cache(batch, capacity, spec=spec, mode=mode)
        if self.leading is not None:
            self.leading.cache(cache, capacity)
        return cache

    def page_pool(self, num_pages: int, page_size: int) -> PagePool:
        pool = super().page_pool(num_pages, page_size)
        if self.leading is not None:
            self.leading.pool(pool)
        return pool

    @property
    def idle_s(self) -> float | None:
        return None if self.leading is None else self.leading.left_s

    def idle(self) -> None:
        if self.leading is not None:
            self.leading.idle()

    def _logits(self, step: Step, cache: Cache, last_only: bool) -> Tensor:
        ranks, traffic = self.ranks, self.ranks.traffic
        traffic.num_passes += 1
        ranks.meeting.place = f"in forward pass {traffic.num_passes}"
        traffic.num_tokens += step.tokens.numel()
        if self.leading is not None:
            self.leading.forward(step, cache, last_only)
        x = self._entering(step)
        if self.shard.is_last_stage:
            x = self._run_layers(x, step, cache, last_only)
        else:  # the next stage needs every token
            x = self._run_layers(x, replace(step, num_asked=None, asked=None), cache, False)
        wanted = self._leaving(x, step, last_only)
        traffic.num_wanted += wanted.shape[0] * wanted.shape[1]
        return self.logits(wanted)

    def _entering(self, step: Step) -> Tensor:
        """[B, T, K] before this rank's first layer"""
        if self.shard.is_first_stage:
            return self._embedded(step)
        shape = (*step.tokens.shape, self.config.hidden_size)
        return self.ranks.receive(shape, self.ranks.layout.rank(self.ranks.stage - 1, self.ranks.lane))

    def _leaving(self, x: Tensor, step: Step, last_only: bool) -> Tensor:
        """x after this rank's last layer -> of the wanted tokens, after the model's last layer"""
        ranks, layout = self.ranks, self.ranks.layout
        if layout.pp == 1:
            return x
        last = layout.pp - 1
        if ranks.stage == last:
            ranks.send(x, [layout.rank(stage, ranks.lane) for stage in range(last)])
            return x
        ranks.send(x, [layout.rank(ranks.stage + 1, ranks.lane)])
        shape = step.wanted(x, last_only).shape
        return ranks.receive(shape, layout.rank(last, ranks.lane))
