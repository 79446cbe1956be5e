"""Quality of displaced patches against the bytes that ranks exchange."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor

from qbench.displaced.dit import KINDS, NUM_TOKENS, PATCH, SIZE, Dit, shapes
from qbench.displaced.sampler import PatchSampler, Schedule, sample_ref
from qbench.runtime.parallel.ranks import Ranks
from quant.json_data import JsonData

PEAK = 2.0  # pixels are from -1 to 1
POOL = 4  # pixels of a side that a feature of the distance is the mean of


@dataclass(frozen=True, slots=True)
class PatchQuality(JsonData):
    """One schedule.

    psnr_db    of the pictures against those of one rank; None: they are equal
    distance   Frechet distance of the pictures from real ones, in means of 4 x 4 pixels
    one_rank_distance  the same of one rank's pictures
    bytes_per_picture  sent by all ranks, as counted; expected_bytes_per_picture: by the formula
    share      of the time that rank 0 spends on sending and waiting, in both of its threads
    """

    warm_up: int
    refresh: int
    psnr_db: float | None
    distance: float
    one_rank_distance: float
    bytes_per_picture: float
    expected_bytes_per_picture: float
    share: float


def measure_patches(
    model: Dit, ranks: Ranks, schedules: list[Schedule], count: int, seed: int = 1
) -> Iterator[PatchQuality]:
    """Every rank calls it. Rows are equal on all ranks; shares of the time are of each rank."""
    draw = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, NUM_TOKENS, PATCH**2, generator=draw)
    kinds = torch.randint(len(KINDS), (count,), generator=draw)
    real, _ = shapes(count, seed + 1)
    sampler = PatchSampler(model, ranks)
    truth_of = cache(partial(sample_ref, model, noise, kinds))
    for schedule in schedules:
        truth = truth_of(schedule.steps)
        ranks.meeting.tell("start", "")
        ranks.traffic.restart()
        start = time.perf_counter()
        found = sampler.sample(noise, kinds, schedule)
        seconds = time.perf_counter() - start
        sent = sum(map(int, ranks.meeting.tell("bytes", str(ranks.traffic.num_bytes))))
        yield PatchQuality(
            warm_up=schedule.warm_up,
            refresh=schedule.refresh,
            psnr_db=psnr_db(found, truth),
            distance=frechet_distance(found, real),
            one_rank_distance=frechet_distance(truth, real),
            bytes_per_picture=sent / count,
            expected_bytes_per_picture=sampler.num_bytes(count, schedule) / count,
            share=ranks.traffic.seconds / seconds,
        )


def psnr_db(x: Tensor, truth: Tensor) -> float | None:
    """Peak signal-to-noise ratio in decibels; None for equal pictures"""
    error = float((x - truth).double().square().mean())
    return None if error == 0 else float(10 * torch.tensor(PEAK**2 / error).log10())


def frechet_distance(x: Tensor, y: Tensor) -> float:
    """Squared Frechet distance of two normal distributions, those of the features of pictures x and y.

    source   Heusel et al. 2017, FID, arXiv:1706.08500, eq. 6; here the features are means of pixels, not a net's
    """
    x, y = _features(x), _features(y)
    of_x, of_y = x.T.cov(), y.T.cov()
    root = torch.linalg.eigvals(of_x @ of_y).real.clamp_min(0).sqrt().sum()
    return float((x.mean(0) - y.mean(0)).square().sum() + of_x.trace() + of_y.trace() - 2 * root)


def _features(x: Tensor) -> Tensor:
    side = SIZE // POOL
    return x.double().reshape(-1, side, POOL, side, POOL).mean((2, 4)).flatten(1)
