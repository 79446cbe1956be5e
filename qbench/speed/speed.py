"""Throughput of prefill (`pp`) and decode (`tg`) at a depth, as llama-bench defines them."""

from typing import Any

import numpy as np

from qbench.measure.host.energy import NO_METER, Meter
from qbench.progress import Progress
from qbench.speed.interleaved import interleave
from qbench.speed.median_interval import median_interval
from qbench.speed.rounds import PHASES, Rounds
from qbench.speed.speed_case import SpeedCase
from qbench.speed.speed_worker import TimedModel
from qbench.speed.spent import energy
from qbench.speed.steady import outliers
from qbench.statistics import spread


def measure_speed(
    model: Any,
    case: SpeedCase,
    *,
    threads: int = 1,
    meter: Meter = NO_METER,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Prefill and decode in turn, so that a slow spell of the machine hits both alike.

    returns  `speed_statistics`, and cache_bytes: what the cache of all sequences takes after the last pass
    raises   InputError for more tokens than the model's context holds
    """
    case.check_context(model.config.max_positions)
    timed = TimedModel(model)
    rounds = interleave([timed], case, threads=threads, meter=meter, progress=progress)
    return speed_statistics(case, rounds, 0) | {"cache_bytes": timed.cache.size_bytes}


def speed_statistics(case: SpeedCase, rounds: Rounds, side: int) -> dict[str, Any]:
    """Medians, intervals and spread beside them, raw samples kept; None for what was not measured.

    tok_s     of all sequences together; its samples are of the rounds after the warm-up
    ttft_ms   of a prefill of all sequences; tpot_ms: from one token to the next of a sequence
    interval  95 %, of the median; None for fewer than 6 samples
    samples   those that count, and the indices of `outliers` among them; `warm_up`: those before; of each the
              conditions; `stopped`: why there are no more
    timed_seconds  of all samples, those of the warm-up too
    """
    rates = {phase: _rates(case, rounds, phase, side) for phase in PHASES}
    ttft, step = (_median_ms(rounds, phase, side) for phase in PHASES)
    return {
        **{f"{phase}_tok_s": spread(rates[phase])["median"] if rates[phase] else None for phase in PHASES},
        "ttft_ms": ttft,
        "tpot_ms": None if step is None else step / case.tg,
        "interval": {f"{phase}_tok_s": median_interval(rates[phase]) for phase in PHASES},
        "spread": {f"{phase}_tok_s": spread(rates[phase]) if rates[phase] else None for phase in PHASES},
        "samples": {f"{phase}_tok_s": rates[phase] for phase in PHASES} | _about(case, rounds, side),
        "energy": energy(rounds, side),
        "timed_seconds": sum(sum(sides[side].seconds) for sides in rounds.of.values()),
    }


def _rates(case: SpeedCase, rounds: Rounds, phase: str, side: int) -> list[float]:
    """Tokens a second of each round after the warm-up."""
    return [tokens(case, phase) / seconds for seconds in rounds.steady(phase, side)] if phase in rounds.of else []


def tokens(case: SpeedCase, phase: str) -> int:
    return case.batch * {"pp": case.pp, "tg": case.tg}[phase]


def _median_ms(rounds: Rounds, phase: str, side: int) -> float | None:
    return 1e3 * float(np.median(rounds.steady(phase, side))) if phase in rounds.of else None


def _about(case: SpeedCase, rounds: Rounds, side: int) -> dict[str, Any]:
    """What stands beside the samples: the warm-up's, the outliers, how the machine was, and why there are no more."""
    of = {f"{phase}_tok_s": (phase, rounds.of[phase][side], rounds.warm_up(phase)) for phase in rounds.of}
    conditions = ("clock_mhz", "temperature_c", "load", "busy_by_others")
    return {
        "warm_up": {
            key: [tokens(case, phase) / seconds for seconds in samples.seconds[:first]]
            for key, (phase, samples, first) in of.items()
        },
        "outliers": {key: outliers(samples.seconds[first:]) for key, (_, samples, first) in of.items()},
        **{
            name: {
                key: [getattr(moment, name) for moment in samples.conditions[first:]]
                for key, (_, samples, first) in of.items()
            }
            for name in conditions
        },
        "stopped": rounds.stopped,
    }
