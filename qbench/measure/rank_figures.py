"""Figures of a model that is divided among ranks: the traffic of a phase, and the memory of every rank."""

from dataclasses import dataclass
from typing import ClassVar

from quant.json_data import JsonRow


@dataclass(frozen=True, slots=True)
class Bubble(JsonRow):
    """The time of pipeline stages in which they run no layer.

    micro_batches  per pass, as counted
    share          of the stages' time
    exchanged      the part of this share that goes to messages, waiting included; the rest is Python; None: unknown
    expected       the share by the formula
    unequal        the same for the stages' measured times; None: unknown
    """

    json_omits: ClassVar[tuple[str, ...]] = ("unequal", "exchanged")

    micro_batches: float
    share: float
    expected: float
    unequal: float | None = None
    exchanged: float | None = None


@dataclass(frozen=True, slots=True)
class ExpertLoad(JsonRow):
    """The work of routed experts of each lane.

    pairs   of a token and an expert of the lane, over all layers
    skew    the largest over the mean; 1 if the lanes have the same work
    """

    pairs: list[int]
    skew: float


@dataclass(frozen=True, slots=True)
class CountedTraffic(JsonRow):
    """Traffic of one phase, of all ranks together.

    bytes_per_token, messages_per_pass  counted as they are sent
    expected_bytes_per_token, expected_messages_per_pass  by the formula
    """

    bytes_per_token: float = 0.0
    messages_per_pass: float = 0.0
    expected_bytes_per_token: float = 0.0
    expected_messages_per_pass: float = 0.0


@dataclass(frozen=True, slots=True)
class Exchange(CountedTraffic):
    """The traffic and its cost.

    share    of the phase that rank 0 spends on sending, receiving and waiting, 0 to 1; 0: not timed
    bubble   None: without stages, with lanes, or not timed
    experts  None: without lanes of experts
    """

    json_omits: ClassVar[tuple[str, ...]] = ("share", "bubble", "experts")

    share: float = 0.0
    bubble: Bubble | None = None
    experts: ExpertLoad | None = None


@dataclass(frozen=True, slots=True)
class RankFigures(JsonRow):
    """Figures of all ranks, in their order.

    link       between the ranks, one of qbench.run.rank_layout.LINKS
    exchanges  phase -> its traffic
    """

    link: str | None = None
    exchanges: dict[str, Exchange] | None = None
    weight_bytes: list[int] | None = None
    kv_bytes: list[int] | None = None
    peak_rss_bytes: list[int] | None = None
