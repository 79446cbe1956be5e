"""From the options of the command line to the rows."""

from dataclasses import dataclass, replace

from qbench.calibration.open_subject import with_kv_format
from qbench.measure.host.conditions import busy_share, busy_warning, check_clock
from qbench.measure.host.forced import forced
from qbench.measure.host.machine import available_cores
from qbench.measure.host.placement import Placement, placement
from qbench.mla.crossover import Crossover, measured_crossovers
from qbench.mla.measure import Grid, ModeRow, measure_modes
from qbench.progress import Progress
from qbench.runtime import ModelConfig, set_threads
from qbench.sources import open_source
from quant.json_data import JsonData

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
