"""Sampling on several ranks: each has some rows of patches, and keys and values of the others from the step before.

source   Li et al. 2024, DistriFusion, arXiv:2402.19481: displaced patch parallelism, after synchronous warm-up steps
"""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from qbench.displaced.dit import NUM_BLOCKS, NUM_TOKENS, PATCH, SIDE, WIDTH, Dit, attend_ref, pictures
from qbench.run.divisions import borders
from qbench.runtime.parallel.ranks import Ranks
from quant.errors import InputError

NEVER = 0
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps of a sample, and when ranks exchange keys and values.

    warm_up  first steps, in which each layer waits for the keys and values of this step
    refresh  later, every so many steps the ranks send those of this step for the steps to come; NEVER: nothing is sent
    """

    steps: int = 20
    warm_up: int = 4
    refresh: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.warm_up <= self.steps or self.refresh < NEVER:
            raise InputError(
                f"got {self.steps} steps, warm-up {self.warm_up}, refresh {self.refresh}; expected a warm-up of 1 step "
                "up to all, and a refresh of 0 or more"
            )

    def sends(self, step: int) -> bool:
        """Whether a step after the warm-up sends keys and values; those of the last step would be of no use."""
        late = step - self.warm_up
        return self.refresh != NEVER and late % self.refresh == 0 and step < self.steps - 1

    @property
    def num_exchanges(self) -> int:
        return self.warm_up + sum(map(self.sends, range(self.warm_up, self.steps)))


def sample_ref(model: Dit, noise: Tensor, kinds: Tensor, steps: int) -> Tensor:
    """Pictures [B, SIZE, SIZE] of one rank, from noise [B, NUM_TOKENS, PATCH**2]"""
    x = noise
    for step in range(steps):
        time = torch.full((len(x),), step / steps)
        x = x + model(x, time, kinds, slice(None), attend_ref) / steps
    return pictures(x)


class PatchSampler:
    """One rank's rows of patches; every rank calls `sample` with the same arguments."""

    def __init__(self, model: Dit, ranks: Ranks) -> None:
        num_ranks = ranks.layout.num_ranks
        if num_ranks > SIDE:
            raise InputError(f"{num_ranks} ranks are more than the {SIDE} rows of patches; give at most that many")
        rows = borders(SIDE, 1, num_ranks)
        self.parts = [slice(its.start * SIDE, its.stop * SIDE) for its in rows]
        self.model, self.ranks = model, ranks

    @torch.inference_mode()
    def sample(self, noise: Tensor, kinds: Tensor, schedule: Schedule) -> Tensor:
        """As `sample_ref`"""
        own = self.parts[self.ranks.rank]
        x = noise[:, own]
        with ThreadPoolExecutor(1) as sender:
            exchange = KeyValueExchange(self, schedule, sender)
            for exchange.step in range(schedule.steps):
                time = torch.full((len(x),), exchange.step / schedule.steps)
                x = x + self.model(x, time, kinds, own, exchange.attend) / schedule.steps
        return pictures(self.gather(x))

    def gather(self, x: Tensor) -> Tensor:
        """x [B, T, K] of each rank's tokens -> [B, NUM_TOKENS, K] of all"""
        batch, _, width = x.shape
        sizes = [(part.stop - part.start) for part in self.parts]
        parts = self.ranks.gather(x.flatten(), [batch * size * width for size in sizes])
        return torch.cat([part.view(batch, size, width) for part, size in zip(parts, sizes, strict=True)], 1)

    def num_bytes(self, batch: int, schedule: Schedule) -> int:
        """Sent by all ranks for one sample: keys and values of each exchange and layer, and the picture"""
        values = schedule.num_exchanges * NUM_BLOCKS * 2 * WIDTH + PATCH**2
        return (len(self.parts) - 1) * batch * NUM_TOKENS * values * FLOAT_BYTES


class KeyValueExchange:
    """Attention of a rank's queries to its own keys and values, and to those of the others that are there.

    sender   a thread that sends while later layers compute
    """

    def __init__(self, sampler: PatchSampler, schedule: Schedule, sender: ThreadPoolExecutor) -> None:
        self.sampler, self.schedule, self.sender = sampler, schedule, sender
        self.own = sampler.parts[sampler.ranks.rank]
        self.step = 0
        self._held: dict[int, Tensor] = {}  # layer -> keys and values [B, NUM_TOKENS, 2 * WIDTH]
        self._coming: dict[int, Future[Tensor]] = {}

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        fresh = torch.cat([k, v], -1)
        if self.step < self.schedule.warm_up:
            self._held[layer] = self.sampler.gather(fresh)
        else:
            if layer in self._coming:
                self._held[layer] = self._coming.pop(layer).result()
            self._held[layer][:, self.own] = fresh
            if self.schedule.sends(self.step):
                self._coming[layer] = self.sender.submit(self.sampler.gather, fresh)
        return attend_ref(layer, q, *self._held[layer].chunk(2, -1))
