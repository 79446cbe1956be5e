"""Joules of a repetition beyond the machine's idle energy."""

import numpy as np

from qbench.measure.speed_figures import Energy
from qbench.speed.rounds import Rounds, Samples


def energy(rounds: Rounds, side: int) -> Energy:
    """The median energy of a repetition; without a meter the reason.

    Idle power is measured in the same run, with the models loaded; the power of other programs then counts as idle.
    """
    if not rounds.meter.counters:
        return Energy(reason=rounds.meter.reason)
    joules = {
        phase: _beyond_idle(samples[side], rounds.warm_up(phase), rounds.idle_watts)
        for phase, samples in rounds.of.items()
    }
    return Energy(joules=joules, idle_watts=rounds.idle_watts)


def _beyond_idle(samples: Samples, first: int, idle_watts: dict[str, float]) -> dict[str, float]:
    moments = samples.conditions[first:]
    return {
        name: float(np.median([moment.joules[name] - watts * moment.seconds for moment in moments]))
        for name, watts in idle_watts.items()
    }
