"""Throughput of prefill (`pp`) and decode (`tg`) at a depth, as llama-bench defines them."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from qbench.measure.host.energy import NO_METER, Meter
from qbench.measure.speed_figures import Samples, SpeedFigures, Spread
from qbench.progress import Progress
from qbench.run.work import SpeedWork
from qbench.runtime.caches.step_reads import TierReads
from qbench.speed.interleaved import interleave
from qbench.speed.rounds import PHASES, Rounds, energy
from qbench.speed.speed_worker import TimedModel
from qbench.speed.steady import outliers
from qbench.statistics.intervals import median_interval, spread
from qbench.statistics.speed import speed_ratio
from quant.present import present


def measure_speed(
    model: Any,
    case: SpeedWork,
    *,
    threads: int = 1,
    meter: Meter = NO_METER,
    progress: Progress | None = None,
) -> SpeedFigures:
    """Prefill and decode in turn, so that a slow spell of the machine hits both.

    raises   InputError for more tokens than the model's context holds
    """
    return time_model(model, case, threads=threads, meter=meter, progress=progress)[0]


def time_model(
    model: Any,
    case: SpeedWork,
    *,
    threads: int = 1,
    meter: Meter = NO_METER,
    probe: Callable[[], float | None] | None = None,
    progress: Progress | None = None,
) -> tuple[SpeedFigures, Rounds]:
    """As `measure_speed`, and the rounds. probe: as of `interleave`"""
    case.check_context(model.config.max_positions)
    timed = TimedModel(model)
    rounds = interleave([timed], case, threads=threads, meter=meter, probe=probe, progress=progress)
    return cached_statistics(case, rounds, 0, present(timed.cache)), rounds


def cached_statistics(case: SpeedWork, rounds: Rounds, side: int, cache: Any) -> SpeedFigures:
    """`speed_statistics`, and the figures of the cache that the side holds after the rounds."""
    figures = speed_statistics(case, rounds, side)
    held = {"kv_bytes_held": cache.size_bytes, "kv_peak_bytes": cache.peak_bytes, "tokens_read": cache.tokens_read}
    return replace(figures, **held, **_tier_figures(cache.tier_reads))


def rate_ratios(first: SpeedFigures, other: SpeedFigures) -> dict[str, dict[str, float | None]]:
    """Phase -> speed over that of the first, with its interval and the p value of no difference.

    Both took turns.
    """
    one, two = present(first.samples), present(other.samples)
    return {phase: asdict(speed_ratio(one.of(phase), two.of(phase))) for phase in PHASES if one.of(phase)}


def _tier_figures(reads: TierReads | None) -> dict[str, float]:
    if reads is None:
        return {}
    return {
        "kv_blocks_loaded": reads.blocks_loaded,
        "kv_bytes_read": reads.bytes_read,
        "kv_hit_share": reads.hit_share,
    }


def speed_statistics(case: SpeedWork, rounds: Rounds, side: int) -> SpeedFigures:
    """The figures of one of the sides, from the rounds after the warm-up."""
    rates = {phase: _rates(case, rounds, phase, side) for phase in PHASES}
    ttft, step = (_median_ms(rounds, phase, side) for phase in PHASES)
    spreads = {phase: Spread.from_json(spread(rates[phase])) if rates[phase] else None for phase in PHASES}
    return SpeedFigures(
        pp_tok_s=spreads["pp"] and spreads["pp"].median,
        tg_tok_s=spreads["tg"] and spreads["tg"].median,
        ttft_ms=ttft,
        tpot_ms=None if step is None else step / case.tg,
        interval={f"{phase}_tok_s": _ends(rates[phase]) for phase in PHASES},
        spread={f"{phase}_tok_s": spreads[phase] for phase in PHASES},
        samples=_samples(case, rounds, side, rates),
        energy=energy(rounds, side),
        timed_seconds=sum(sum(sides[side].seconds) for sides in rounds.of.values()),
    )


def _ends(rates: list[float]) -> list[float] | None:
    interval = median_interval(rates)
    return None if interval is None else list(interval)


def _rates(case: SpeedWork, rounds: Rounds, phase: str, side: int) -> list[float]:
    """Tokens a second of each round after the warm-up."""
    return [tokens(case, phase) / seconds for seconds in rounds.steady(phase, side)] if phase in rounds.of else []


def tokens(case: SpeedWork, phase: str) -> int:
    return case.batch * {"pp": case.pp, "tg": case.tg}[phase]


def _median_ms(rounds: Rounds, phase: str, side: int) -> float | None:
    return 1e3 * float(np.median(rounds.steady(phase, side))) if phase in rounds.of else None


def _samples(case: SpeedWork, rounds: Rounds, side: int, rates: dict[str, list[float]]) -> Samples:
    """The rates that count, those of the warm-up, the outliers, and the conditions of each."""
    of = {f"{phase}_tok_s": (phase, rounds.of[phase][side], rounds.warm_up(phase)) for phase in rounds.of}

    def conditions(name: str) -> dict[str, list[float | None]]:
        return {
            key: [getattr(moment, name) for moment in samples.conditions[first:]]
            for key, (_, samples, first) in of.items()
        }

    return Samples(
        pp_tok_s=rates["pp"],
        tg_tok_s=rates["tg"],
        warm_up={
            key: [tokens(case, phase) / seconds for seconds in samples.seconds[:first]]
            for key, (phase, samples, first) in of.items()
        },
        outliers={key: outliers(samples.seconds[first:]) for key, (_, samples, first) in of.items()},
        clock_mhz=conditions("clock_mhz"),
        temperature_c=conditions("temperature_c"),
        load=conditions("load"),
        busy_by_others=conditions("busy_by_others"),
        stopped=rounds.stopped,
    )
