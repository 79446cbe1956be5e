"""Rounds: every phase of every side once, in turn; its times, its joules, and the machine's state meanwhile."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from qbench.measure.host.conditions import Conditions
from qbench.measure.host.energy import NO_METER, Meter
from qbench.measure.speed_figures import Energy
from qbench.speed.steady import warm_up_rounds

PHASES = ("pp", "tg")


class Side(Protocol):
    """A timed model, in this process or in another."""

    @property
    def pid(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    def hold(self, tokens: list[list[int]], capacity: int) -> None: ...
    def seconds(self, tokens: list[list[int]], step: int) -> float: ...


@dataclass(slots=True)
class Samples:
    """Samples of one phase of one side, one per round: seconds, and the machine's conditions."""

    seconds: list[float] = field(default_factory=list)
    conditions: list[Conditions] = field(default_factory=list)


@dataclass(slots=True)
class Rounds:
    """of          phase -> its Samples, one per side; phases that are not asked for are absent
    meter       of the energy
    idle_watts  of each of its counters while no side works
    stopped     why no further round was run: "narrow": every interval is; "budget": the time is over; "repetitions":
                as many as were asked for
    probed      results of a probe of the machine, one per round
    """

    of: dict[str, list[Samples]]
    meter: Meter = NO_METER
    idle_watts: dict[str, float] = field(default_factory=dict)
    stopped: str = ""
    probed: list[float] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Rounds after the warm-up of every phase."""
        return min(len(self.steady(phase, 0)) for phase in self.of)

    def steady(self, phase: str, side: int) -> list[float]:
        """Seconds after the warm-up."""
        return self.of[phase][side].seconds[self.warm_up(phase) :]

    def warm_up(self, phase: str) -> int:
        """Rounds until this phase of every side had its pace."""
        return max(warm_up_rounds(samples.seconds) for samples in self.of[phase])


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
