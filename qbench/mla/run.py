"""From the options of the command line to the rows, and from how many new tokens on a mode is faster."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from qbench.calibration.open_subject import with_kv_format
from qbench.measure.host.conditions import busy_share, busy_warning, check_clock, forced
from qbench.measure.host.machine import available_cores
from qbench.measure.host.placement import Placement, placement
from qbench.mla.measure import Grid, ModePoint, ModeRow, measure_modes
from qbench.progress import Progress
from qbench.run.choices import set_threads
from qbench.runtime.attention.mla_modes import COMPRESSED, ELIDED, choose_mode
from qbench.sources import open_source
from quant.json_data import JsonData
from quant.models import ModelConfig
from quant.present import present

FEW, MANY = ELIDED, COMPRESSED
MOST_TOKENS = 4096  # of a forward pass; no measured crossing is above 300


@dataclass(frozen=True, slots=True)
class Crossover(JsonData):
    """Where the two modes' times cross at one context and batch.

    tokens  new ones of a sequence, between the two measured numbers around it as logarithms are; None if one mode
            is faster throughout
    picked  from how many on the runtime takes the mode of many, whatever was measured here; None: from no number on
    """

    context: int
    batch: int
    tokens: float | None
    picked: int | None


def measured_crossovers(rows: Sequence[ModePoint], config: ModelConfig) -> list[Crossover]:
    """One for each context and batch of the rows."""
    times: dict[tuple[int, int], dict[int, dict[str, float]]] = {}
    for row in rows:
        times.setdefault((row.context, row.batch), {}).setdefault(row.tokens, {})[row.mode] = row.ms
    found = []
    for (context, batch), by_tokens in times.items():
        tokens = crossing({count: ms[FEW] / ms[MANY] for count, ms in by_tokens.items() if FEW in ms and MANY in ms})
        picked = picked_crossover(config, context)
        found.append(Crossover(context, batch, tokens, picked))
    return found


def picked_crossover(config: ModelConfig, held: int) -> int | None:
    """The fewest new tokens of a sequence that holds `held` for which the runtime makes keys and values again; None if
    it does not do so for MOST_TOKENS.
    """
    counts = range(2, min(config.max_positions - held, MOST_TOKENS) + 1)
    return next(
        (new for new in counts if choose_mode(present(config.mla), config.num_heads, held, new).name == MANY), None
    )


def crossing(ratios: dict[int, float]) -> float | None:
    """Where the ratio goes from 1 or less to above 1, for the first time."""
    points = sorted(ratios.items())
    for (left, low), (right, high) in pairwise(points):
        if low <= 1 < high:
            share = -math.log(low) / (math.log(high) - math.log(low))
            return left * (right / left) ** share
    return None


CASE_KEYS = ("model", "device", "kv_format", "threads", "clock", "context", "batch", "tokens", "mode")


CONTEXTS, TOKENS = (512, 4096), (1, 512)  # that are measured by default


@dataclass(frozen=True, slots=True)
class MlaRow(JsonData):
    """A measured mode and the circumstances. busy_before: share of the machine that others took"""

    json_flat = ("measured", "placement")

    measured: ModeRow
    busy_before: float
    forced: str | None
    placement: Placement


@dataclass(frozen=True, slots=True)
class Found:
    """rows of `measure_modes`, where the modes cross, and a warning of other programs, if there are any"""

    rows: list[MlaRow]
    crossovers: list[Crossover]
    warning: str | None


def run_mla(
    spec: str,
    grid: Grid,
    *,
    device: str = "cpu",
    kv: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Found:
    """raises InputError for a model without latent attention, an unknown KV format, or a device that is not there"""
    source = with_kv_format(open_source(spec), kv, device)
    threads = threads or available_cores()
    check_clock(grid.clock, threads)
    set_threads(threads)
    busy = busy_share()
    config = ModelConfig.of(source)
    contexts, tokens = fitting_lengths(config, grid.contexts, grid.tokens)
    grid = replace(grid, contexts=contexts, tokens=tokens)
    rows = [MlaRow(row, busy, forced(), placement()) for row in measure_modes(source, grid, device, progress)]
    crossovers = measured_crossovers([row.measured.point for row in rows], config)
    return Found(rows, crossovers, busy_warning(busy))


def fitting_lengths(
    config: ModelConfig, contexts: tuple[int, ...], tokens: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Contexts and tokens: those asked for, or as many of CONTEXTS and TOKENS as the model's context holds."""
    tokens = tokens or _up_to(TOKENS, config.max_positions // 2)
    return contexts or _up_to(CONTEXTS, max(config.max_positions - max(tokens), 0)), tokens


def _up_to(lengths: tuple[int, ...], most: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(min(length, most) for length in lengths))
