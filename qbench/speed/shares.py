"""Share of the roofline: one definition for `bench`, `race --vs` and `kernels`. Tables name it by `ROOFLINE_LEGEND`.

    share = median over the rounds of (least time of the round / time taken in the round)

The least time of a round follows from the bandwidth that was read in the same round. On a shared machine the bandwidth
may halve from one second to the next, so that one figure for all rounds would describe the moment of its measurement.
Operations take the strongest unit of the machine that could do the job: the rule is in `qbench.speed.units`.
"""

from collections.abc import Mapping, Sequence
from statistics import median

from qbench.measure.speed_figures import Roofline
from qbench.run.work import SpeedWork
from qbench.speed.machine_peaks import CurrentPeaks
from qbench.speed.roofline import Peaks, least_seconds
from qbench.speed.rounds import PHASES, Rounds

ROUND = "round"  # `Roofline.bandwidth_of`: older records divide by the largest bandwidth of the run

Work = Mapping[str, Mapping[str, float]]  # as `least_work`


def fits_in_cache(work: Work, cache_bytes: int) -> bool:
    """Whether a cache holds all that a decode step reads: the bandwidth of the memory is no bound then."""
    return sum(work["tg_bytes"].values()) <= cache_bytes


def operands_of(work: Work) -> list[str]:
    """Kinds of operands of a prefill and of a decode step."""
    return list({**work["pp_ops"], **work["tg_ops"]})


def without_peak(work: Work, ops_per_s: Mapping[str, float]) -> list[str]:
    """The operands of the work whose strongest unit could not be measured: no share is known then."""
    return [name for name in operands_of(work) if name not in ops_per_s]


def peaks_of(work: Work, ops_per_s: Mapping[str, float]) -> dict[str, float]:
    """Operations per second of the strongest unit, by operands of the work, of those that were measured."""
    return {name: ops_per_s[name] for name in operands_of(work) if name in ops_per_s}


def units_of(work: Work, machine: CurrentPeaks) -> dict[str, str]:
    """The same units' names."""
    return {name: machine.units[name] for name in operands_of(work) if name in machine.units}


def share_of_rounds(least: Sequence[float], taken: Sequence[float]) -> float:
    """least, taken   seconds, one per round"""
    return median(bound / seconds for bound, seconds in zip(least, taken, strict=True))


def phase_shares(
    work: Work, case: SpeedWork, rounds: Rounds, side: int, machine: CurrentPeaks
) -> dict[str, float | None]:
    """Phase -> the share of this side; None for a phase that was not measured or whose operations have no peak, and for
    tg if a cache holds its bytes.

    rounds   `probed` holds the bandwidth of each round
    """
    steps, found = {"pp": 1, "tg": case.tg}, {}
    is_cold = bool(rounds.probed) and not fits_in_cache(work, machine.cache_bytes)
    for phase in PHASES:
        if phase not in rounds.of or without_peak(work, machine.ops_per_s) or (phase == "tg" and not is_cold):
            found[phase] = None
            continue
        taken, first = rounds.steady(phase, side), rounds.warm_up(phase)
        speeds = rounds.probed[first:] if is_cold else [None] * len(taken)
        least = [steps[phase] * least_seconds(work, Peaks(speed, dict(machine.ops_per_s)))[phase] for speed in speeds]
        found[phase] = share_of_rounds(least, taken)
    return found


def roofline(work: Work, case: SpeedWork, rounds: Rounds, side: int, machine: CurrentPeaks) -> Roofline:
    """Shares of this side with the terms that they come from. Arguments as in `phase_shares`."""
    shares = phase_shares(work, case, rounds, side, machine)
    return Roofline(
        pp=shares["pp"],
        tg=shares["tg"],
        pp_ops=dict(work["pp_ops"]),
        tg_ops=dict(work["tg_ops"]),
        tg_bytes=dict(work["tg_bytes"]),
        bandwidth_bytes_per_s=median(rounds.probed) if rounds.probed else None,
        peak_ops_per_s=peaks_of(work, machine.ops_per_s),
        bandwidths_bytes_per_s=list(rounds.probed),
        bandwidth_of=ROUND,
        units=units_of(work, machine),
    )
