"""RankModel: the layers of one rank between those of the others."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from qbench.run.cache_spec import CacheSpec
from qbench.run.rank_layout import ALL_TO_ALL
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.caches.step import Step
from qbench.runtime.caches.view.context_part import ContextPart
from qbench.runtime.model import Model
from qbench.runtime.parallel.experts import DispatchedExperts
from qbench.runtime.parallel.leading import FOLLOWING, Leading
from qbench.runtime.parallel.micro_batches import joined, num_wanted, part_of_rows, parts_of, rows_of_lanes
from qbench.runtime.parallel.ranks import Ranks
from qbench.runtime.parallel.shard import Shard
from qbench.runtime.parallel.traffic import Exchanges
from quant.errors import InputError


class RankModel(Model):
    """A Model whose call every rank makes with the same tokens, and which returns the same logits to all of them.

    config     of this rank's layers and heads
    exchanges  those between the lanes of this stage, in one forward pass
    leading    on rank 0: the other ranks follow its forward passes; None: every rank makes each call
    """

    has_separate_head = False  # ranks that follow run whole forward passes
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

    def page_pool(self, num_pages: int, page_size: int, num_sequences: int) -> PagePool:
        pool = super().page_pool(num_pages, page_size, num_sequences)
        if self.leading is not None:
            self.leading.pool(pool, num_sequences)
        return pool

    @property
    def idle_s(self) -> float | None:
        return None if self.leading is None else self.leading.left_s

    def idle(self) -> None:
        if self.leading is not None:
            self.leading.idle()

    def _pass(
        self, tokens: Tensor, cache: Cache, last_only: bool, num_valid: Sequence[int] | np.ndarray | None
    ) -> Tensor:
        begun = cache.begin_apart(tokens.shape[1])
        if begun is None:
            return super()._pass(tokens, cache, last_only, num_valid)
        if num_valid is not None or cache.is_padded:
            raise InputError(f"prefill {self.cache_spec.prefill} on several lanes takes prompts of one length at once")
        self._step(tokens, cache, None)  # raises if there is no room for all of them
        own_cache, apart = begun
        hidden = self._hidden_apart(tokens, own_cache, apart)
        self.ranks.traffic.num_apart += len(tokens) * apart.num_tokens
        cache.advance(apart.num_tokens)
        rest = super()._pass(tokens[:, apart.num_tokens :], cache, last_only, None)
        return rest if last_only else torch.cat([self.logits(self._joined(hidden, apart)), rest], 1)

    def _hidden_apart(self, tokens: Tensor, cache: Cache, apart: ContextPart) -> Tensor:
        """[B, n, K]: own tokens of the beginning after the last layer; no lane waits for another one"""
        places = apart.positions
        step = Step(tokens[:, places], 0, apart.num_tokens, varlen_positions=places)
        if not len(places):
            return torch.empty(len(tokens), 0, self.config.hidden_size)
        _, run = self.paths.choose(cache, len(places))
        return run(self._embedded(step), self.rotations.at(places), step, cache, False)[:, apart.own]

    def _joined(self, hidden: Tensor, apart: ContextPart) -> Tensor:
        """hidden [B, n, K] of every lane -> [B, T, K], the tokens of all of them"""
        batch, num_own, width = hidden.shape
        ranks, traffic = self.ranks, self.ranks.traffic
        shares = [replace(apart.share, lane=lane) for lane in range(apart.share.num_lanes)]
        places = [share.positions(apart.num_tokens) for share in shares]
        parts = ranks.gather(hidden.flatten(), [batch * len(its) * width for its in places])
        traffic.num_shown += batch * num_own
        traffic.num_shows += 1
        joined = hidden.new_empty(batch, apart.num_tokens, width)
        for its, part in zip(places, parts, strict=True):
            joined[:, its] = part.view(batch, len(its), width)
        return joined

    def _logits(self, step: Step, cache: Cache, last_only: bool) -> Tensor:
        ranks, traffic = self.ranks, self.ranks.traffic
        traffic.num_passes += 1
        ranks.meeting.place = f"in forward pass {traffic.num_passes}"
        traffic.num_tokens += step.tokens.numel()
        if self.leading is not None:
            self.leading.forward(step, cache, last_only)
        start = time.perf_counter()
        wanted = self._wanted(step, cache, last_only)
        traffic.stage_seconds += time.perf_counter() - start
        traffic.num_wanted += wanted.shape[0] * wanted.shape[1]
        return self.logits(wanted)

    def _wanted(self, step: Step, cache: Cache, last_only: bool) -> Tensor:
        """Outputs of the model's last layer for the wanted tokens"""
        if self.ranks.layout.micro_batches > 1:
            return self._pipelined(step, cache, last_only)
        if self.ranks.layout.dispatch == ALL_TO_ALL:
            return self._of_lanes(step, cache, last_only)
        self.ranks.traffic.num_parts += 1
        x = self._entering(step)
        return self._leaving(self._run_part(x, step, cache, last_only), step, last_only)

    def _embedded(self, step: Step) -> Tensor:
        start = time.perf_counter()
        x = super()._embedded(step)
        self.ranks.traffic.layer_seconds += time.perf_counter() - start
        return x

    def _run_part(self, x: Tensor, step: Step, cache: Cache, last_only: bool) -> Tensor:
        start = time.perf_counter()
        if self.shard.is_last_stage:
            x = self._run_layers(x, step, cache, last_only)
        else:  # the next stage needs every token
            x = self._run_layers(x, replace(step, num_asked=None, asked=None), cache, False)
        self.ranks.traffic.layer_seconds += time.perf_counter() - start
        return x

    def _pipelined(self, step: Step, cache: Cache, last_only: bool) -> Tensor:
        """As `_wanted`, in parts: a stage sends the output of one part while it receives the input of the next."""
        ranks, layout, sent = self.ranks, self.ranks.layout, None
        before, after = (ranks.rank + by * layout.num_lanes for by in (-1, 1))
        outputs, is_by_tokens = [], cache.batch == 1
        parts = parts_of(step, cache, self.config, layout.micro_batches)
        if not self.shard.is_first_stage and not is_by_tokens:
            parts = list(parts)  # while the stages before this one compute the first part
        for part in parts:
            ranks.traffic.num_parts += 1
            x = torch.empty(*part.step.tokens.shape, self.config.hidden_size)
            if self.shard.is_first_stage:
                x = self._embedded(part.step)
            ranks.pass_on(sent, after, x, None if self.shard.is_first_stage else before)
            x = self._run_part(x, part.step, part.cache, last_only)
            sent = None if self.shard.is_last_stage else x
            if self.shard.is_last_stage:
                outputs.append(x)
        if not self.shard.is_last_stage:
            ranks.pass_on(sent, after)
            return self._from_last_stage(step.wanted(torch.empty(*step.tokens.shape, 0), last_only).shape)
        wanted = joined(outputs, step, is_by_tokens, last_only)
        ranks.send(wanted, [layout.rank(stage, ranks.lane) for stage in range(layout.pp - 1)])
        return wanted

    def _of_lanes(self, step: Step, cache: Cache, last_only: bool) -> Tensor:
        """As `_wanted`: each lane runs the layers for its sequences, and its experts for the tokens of all lanes."""
        ranks, width = self.ranks, self.config.hidden_size
        rows = rows_of_lanes(step, cache, ranks.layout.num_lanes)
        own = rows[ranks.lane]
        ranks.traffic.num_parts += 1
        if own.stop > own.start:
            part = part_of_rows(step, cache, self.config, own)
            x = self._run_part(self._embedded(part.step), part.step, part.cache, last_only).reshape(-1, width)
        else:
            x = torch.empty(0, width)
            for block in self.blocks:
                if isinstance(block.feed_forward, DispatchedExperts):
                    block.feed_forward.serve(width)
        ranks.traffic.num_shown += len(x)
        ranks.traffic.num_shows += len(x) > 0
        parts = ranks.trade([x] * len(rows), num_wanted(step, rows, last_only))
        shape = step.wanted(torch.empty(*step.tokens.shape, 0), last_only).shape
        return torch.cat(parts).view(*shape[:-1], width)

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
        return self._from_last_stage(step.wanted(x, last_only).shape)

    def _from_last_stage(self, shape: Sequence[int]) -> Tensor:
        """shape: of the wanted tokens [..., any]"""
        layout = self.ranks.layout
        return self.ranks.receive([*shape[:-1], self.config.hidden_size], layout.rank(layout.pp - 1, self.ranks.lane))
