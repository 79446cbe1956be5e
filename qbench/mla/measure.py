"""Time and memory of every mode over contexts and batches, in turn, and which of them the runtime picks."""

import ctypes
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from qbench.measure.host.conditions import CLOCKS, Clock
from qbench.measure.host.memory import current_rss_bytes, peak_rss_bytes, reset_peak_rss
from qbench.mla.layer import Layer
from qbench.mla.work import forward_flop
from qbench.progress import Progress
from qbench.runtime.attention.mla_modes import MODES, choose_mode
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.kinds import plan_cache
from qbench.runtime.caches.rules import Asked
from qbench.runtime.caches.storage.latent_format import chosen_latents
from quant.errors import InputError
from quant.json_data import JsonData
from quant.present import present
from quant.source import Source

TURN_S = 0.02  # of calls between which nobody else's are timed: a call of microseconds is timed many times
BUDGET_S = 3.0  # of all turns of one mode: passes of seconds take fewer turns, one at least


@dataclass(frozen=True, slots=True)
class Grid:
    """contexts: tokens held; tokens: new ones of each sequence, 1 for a decode step; rounds: turns of each mode

    modes  names; (): all that the model's KV format can keep
    clock  "wall", or "cpu": the time that the process gets, of one thread
    """

    contexts: tuple[int, ...]
    batches: tuple[int, ...]
    tokens: tuple[int, ...] = (1, 512)
    rounds: int = 5
    modes: tuple[str, ...] = ()
    clock: str = "wall"


@dataclass(frozen=True, slots=True)
class ModePoint(JsonData):
    """A mode at one number of tokens held, sequences and new tokens, and its median time."""

    model: str
    context: int
    batch: int
    tokens: int
    mode: str
    ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRow(JsonData):
    """One mode of one layer's attention at one context, batch and number of new tokens.

    kv_bytes_per_token  of one layer
    flop_per_token      operations per new token, on average
    flop                operations of a sequence by term, see `forward_flop`
    ms, samples_ms      median and all of the time of a forward pass
    peak_bytes          of the cache and all that the forward pass takes apart from the weights
    picked              whether the runtime takes this mode here
    """

    model: str
    device: str
    kv_format: str | None
    threads: int
    clock: str
    context: int
    batch: int
    tokens: int
    mode: str
    kv_bytes_per_token: float
    flop_per_token: float
    flop: dict[str, int]
    ms: float
    samples_ms: list[float]
    peak_bytes: int
    picked: bool

    @property
    def point(self) -> ModePoint:
        return ModePoint(self.model, self.context, self.batch, self.tokens, self.mode, self.ms)


def measure_modes(
    source: Source, grid: Grid, device: str = "cpu", progress: Progress | None = None
) -> Iterator[ModeRow]:
    """One row for each context, batch, number of new tokens and mode, of one layer's attention.

    raises   InputError for a model without latent attention or too small a context
    """
    layer = Layer(source, device)
    names = checked_modes(layer, grid.modes)
    longest = max(grid.contexts) + max(grid.tokens)
    if longest > layer.config.max_positions:
        raise InputError(f"{longest} tokens, but the model's context holds {layer.config.max_positions}")
    cases = [(held, batch, new) for new in grid.tokens for held in grid.contexts for batch in grid.batches]
    for done, case in enumerate(cases):
        if progress is not None:
            progress(done, len(cases), f"{case[2]} new, {case[0]} held, batch {case[1]}")
        yield from _rows(source, layer, case, names, grid)


def checked_modes(layer: Layer, asked: tuple[str, ...]) -> list[str]:
    """Those that are asked for, or all that the model's KV format can keep; InputError for one that it cannot."""
    keeps_latents = chosen_latents(layer.config, layer.scheme)[1] is not None
    for name in asked:
        chosen_latents(layer.config, layer.scheme, name)
    names = [mode.name for mode in MODES.values() if keeps_latents or not mode.keeps_latents]
    return [name for name in names if not asked or name in asked]


def _picked(layer: Layer, held: int, new: int) -> str:
    """The mode that the runtime takes."""
    if chosen_latents(layer.config, layer.scheme)[1] is None:
        return "decompressed"
    return choose_mode(present(layer.config.mla), layer.config.num_heads, held, new).name


def _rows(source: Source, layer: Layer, case: tuple[int, int, int], names: list[str], grid: Grid) -> Iterator[ModeRow]:
    held, batch, new = case
    x, clock = layer.inputs(batch, new), CLOCKS[grid.clock]
    caches, peaks, samples = {}, {}, {name: [] for name in names}
    for name in names:
        caches[name] = layer.cache(name, batch, held, new)
        peaks[name] = _peak_bytes(layer, lambda cache=caches[name]: layer.run(x, cache), caches[name])
    for turn in range(grid.rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            if sum(samples[name]) < 1e3 * BUDGET_S:
                samples[name].append(1e3 * _seconds(layer, lambda cache=caches[name]: layer.run(x, cache), clock))
    for name in names:
        flop = forward_flop(layer.config, MODES[name], held, new)
        yield ModeRow(
            model=source.spec,
            device=str(layer.device),
            kv_format=None if layer.scheme is None else layer.scheme.format.name,
            threads=torch.get_num_threads(),
            clock=grid.clock,
            context=held,
            batch=batch,
            tokens=new,
            mode=name,
            kv_bytes_per_token=plan_cache(Asked(layer.config, layer.scheme, mode=name)).bytes_per_token,
            flop_per_token=sum(flop.values()) / new,
            flop=flop,
            ms=statistics.median(samples[name]),
            samples_ms=samples[name],
            peak_bytes=peaks[name],
            picked=name == _picked(layer, held, new),
        )


def _peak_bytes(layer: Layer, run: Callable[[], Any], cache: Cache) -> int:
    """Bytes of the cache and the peak of a forward pass, without weights."""
    run()  # the first one packs the mode's matrices
    if layer.device.type == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return cache.size_bytes + torch.cuda.max_memory_allocated() - before
    ctypes.CDLL(None).malloc_trim(0)  # freed memory counts as the forward pass's own when it is taken again
    reset_peak_rss()
    before = current_rss_bytes()
    run()
    return cache.size_bytes + max(peak_rss_bytes() - before, 0)


def _seconds(layer: Layer, run: Callable[[], Any], clock: Clock) -> float:
    """Seconds of one call, the fastest of a turn."""
    best, end = float("inf"), time.perf_counter() + TURN_S
    while True:
        start = clock()
        run()
        if layer.device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, clock() - start)
        if time.perf_counter() >= end:
            return best
