"""RankLayout: how one model is divided among ranks, and which of them this process is."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from qbench.words.written import whole_number
from quant.errors import InputError, bounded
from quant.json_data import JsonData

# Called with the message of an error before this process ends; ranks that have joined add one each.
farewells: list[Callable[[str], None]] = []

SUM = "sum"
GATHER = "gather"
CUTS = (SUM, GATHER)
ALL_TO_ALL = "all-to-all"
DISPATCHES = (SUM, ALL_TO_ALL)

AUTO = "auto"  # shm if all ranks are on one host
GLOO = "gloo"
SHM = "shm"
LINKS = (AUTO, GLOO, SHM)
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class RankLayout(JsonData):
    """Every rank holds one lane of one stage: rank = stage * num_lanes + lane.

    tp    lanes: ranks that hold parts of the same layers
    pp    stages: ranks that hold different layers
    ep    lanes that hold different routed experts of the same layers, and all else whole
    sp    lanes that hold the KV cache of different tokens, and all weights
    Lanes are of one kind: tp, ep or sp; each combines with pp.
    cut   of the output and down projections. "sum": by input features; partial sums are added in float32 in the order
          of the ranks. "gather": by output rows; all values are those of one rank, bit for bit
    micro_batches  most parts of a forward pass that stages compute at the same time
    dispatch  of tokens to experts. "sum": every lane has all tokens, and the lanes add their sums. "all-to-all": a lane
          has some sequences, and sends each token to the lanes that hold its experts
    """

    json_omits: ClassVar[tuple[str, ...]] = ("micro_batches", "dispatch")

    tp: int = 1
    pp: int = 1
    cut: str = SUM
    ep: int = 1
    sp: int = 1
    micro_batches: int = 1
    dispatch: str = SUM

    def __post_init__(self) -> None:
        sizes = {"tp": self.tp, "ep": self.ep, "sp": self.sp, "pp": self.pp}
        if min(sizes.values()) < 1:
            raise InputError(f"got {', '.join(f'{name} {n}' for name, n in sizes.items())}; expected 1 or more of each")
        several = [name for name in ("tp", "ep", "sp") if sizes[name] > 1]
        if len(several) > 1:
            first, second = (f"{name} {sizes[name]}" for name in several[:2])
            raise InputError(f"{first} does not combine with {second} yet; use one of them, with pp or not")
        if self.micro_batches > 1 and (several or self.pp == 1):
            raise InputError(
                f"micro-batches are for stages alone, got {self.lanes} {self.num_lanes}, pp {self.pp}; give two stages "
                "or more and no lanes, or leave them out"
            )
        if self.cut not in CUTS:
            raise InputError(f"cut {self.cut!r} is unknown; known: {', '.join(CUTS)}")
        if self.dispatch not in DISPATCHES:
            raise InputError(f"dispatch {self.dispatch!r} is unknown; known: {', '.join(DISPATCHES)}")
        if self.dispatch == ALL_TO_ALL and (self.ep == 1 or self.pp > 1):
            raise InputError(
                f"dispatch {ALL_TO_ALL} is for lanes of experts alone, got {self.lanes} {self.num_lanes}, pp {self.pp};"
                " give ep=2 or more and no stages, or leave it out"
            )

    @property
    def num_ranks(self) -> int:
        return self.num_lanes * self.pp

    @property
    def num_lanes(self) -> int:
        return self.tp * self.ep * self.sp

    @property
    def lanes(self) -> str:
        """Kind of the lanes"""
        return "ep" if self.ep > 1 else "sp" if self.sp > 1 else "tp"

    def lane(self, rank: int) -> int:
        return rank % self.num_lanes

    def stage(self, rank: int) -> int:
        return rank // self.num_lanes

    def rank(self, stage: int, lane: int) -> int:
        return stage * self.num_lanes + lane

    @classmethod
    def of(cls, text: str, num_ranks: int = 1) -> "RankLayout":
        """The layout of a text: one of DIVISIONS over so many ranks, as `parse_ranks` reads it, or as `str` writes it.

        raises   InputError for another text, with the names
        """
        if text in DIVISIONS:
            return cls(**DIVISIONS[text](num_ranks))
        if "=" in text:
            layout, processes = parse_ranks(text)
            if processes != RankProcesses():
                raise InputError(f"division {text!r} names how ranks run; give link, timeout and ray with --ranks")
            return layout
        parts = [part.rpartition(" ") for part in text.split(", ")]
        values = {name.replace("-", "_") or "dispatch": value for name, _, value in parts}
        try:
            found = cls.from_json({name: int(its) if its.isdecimal() else its for name, its in values.items()})
        except (ValueError, TypeError):
            found = None
        if found is None or str(found) != text:
            raise InputError(f"division {text!r} is unknown; known: {', '.join(DIVISIONS)}")
        return found

    @property
    def words(self) -> str:
        """As --ranks has it: "tp=2,cut=gather"."""
        given = [f"{name.replace('_', '-')}={value}" for name, value in self.to_json().items() if value not in (1, SUM)]
        return ",".join(given) or "tp=1"

    def __str__(self) -> str:
        cut = f", cut {self.cut}" if self.tp > 1 else ""
        parts = f", micro-batches {self.micro_batches}" if self.micro_batches > 1 else ""
        dispatch = f", {self.dispatch}" if self.dispatch != SUM else ""
        return f"{self.lanes} {self.num_lanes}, pp {self.pp}{cut}{parts}{dispatch}"


ONE_RANK = RankLayout()

# Name of a division -> its options over so many ranks
DIVISIONS: Mapping[str, Callable[[int], dict]] = {
    "tp": lambda num_ranks: {"tp": num_ranks},
    "gather": lambda num_ranks: {"tp": num_ranks, "cut": GATHER},
    "pp": lambda num_ranks: {"pp": num_ranks},
    "ep": lambda num_ranks: {"ep": num_ranks},
    "sp": lambda num_ranks: {"sp": num_ranks},
}


@dataclass(frozen=True, slots=True)
class RankProcesses:
    """The processes of the ranks.

    link       of values between them, one of LINKS: "shm" is memory that they share, "gloo" are sockets
    timeout_s  longest wait for another rank; the run then ends with its name
    ray        HOST:PORT of the head of a Ray cluster that starts them, "auto" or "local"; None: torchrun does
    restarts   with Ray: times that all ranks start again after one was lost
    """

    link: str = AUTO
    timeout_s: float = TIMEOUT_S
    ray: str | None = None
    restarts: int = 0

    def __post_init__(self) -> None:
        if self.link not in LINKS:
            raise InputError(f"ranks: link {self.link!r} is unknown; known: {', '.join(LINKS)}")
        if not 0 < self.timeout_s <= LONGEST_S:
            raise InputError(f"ranks: timeout is {self.timeout_s:g}, expected more than 0 seconds, at most {LONGEST_S}")
        if self.restarts and self.ray is None:
            raise InputError("ranks: restarts is for ranks of ray; torchrun has --max-restarts")


LONGEST_S = 10**6


def parse_ranks(text: str) -> tuple[RankLayout, RankProcesses]:
    """ "tp=2,cut=gather,link=shm" as the layout and the processes of ranks.

    raises   InputError for a key that is unknown or comes twice, and for a value that it cannot have
    """
    makers: dict[str, Callable[[str], str | int | float]] = {
        **dict.fromkeys(("tp", "pp", "ep", "sp", "micro-batches", "restarts"), whole_number),
        **dict.fromkeys(("cut", "dispatch", "link", "ray"), str),
        "timeout": _seconds,
    }
    values: dict[str, str | int | float] = {}
    for part in text.split(","):
        key, equals, value = (word.strip() for word in part.partition("="))
        if key not in makers or not equals or not value:
            raise InputError(f"ranks {bounded(text, 60)!r}: {bounded(part, 40)!r} is not KEY=VALUE with a key of "
                             f"{', '.join(makers)}; an example is tp=2,pp=2")  # fmt: skip
        if key in values:
            raise InputError(f"ranks {bounded(text, 60)!r}: {key} stands twice")
        values[key] = makers[key](value)
    processes = {
        "timeout_s" if key == "timeout" else key: values.pop(key)
        for key in ("link", "timeout", "ray", "restarts")
        if key in values
    }
    if "cut" in values and values.get("tp", 1) == 1:
        raise InputError("ranks: cut is of tp lanes, got tp 1; give tp=2 or more, or leave it out")
    layout = {key.replace("-", "_"): value for key, value in values.items()}
    return RankLayout(**layout), RankProcesses(**processes)  # type: ignore[arg-type]


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"ranks: timeout is {bounded(text, 40)!r}, expected a number of seconds") from error


class RankError(InputError):
    """Another rank ended or does not answer."""


@dataclass(frozen=True, slots=True)
class World:
    """The number of this process among all ranks, as torchrun sets it, and how many of them are on its host."""

    rank: int
    size: int
    local_size: int

    @property
    def is_first(self) -> bool:
        return self.rank == 0


def find_world() -> World | None:
    """None for a process that torchrun did not start."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    if not all(os.environ.get(name, "").isdecimal() for name in names):
        return None
    return World(*(int(os.environ[name]) for name in names))


def check_world(layout: RankLayout) -> World:
    """The world, if it has as many ranks as the layout.

    raises   InputError with the command line that starts them
    """
    world = find_world()
    if world is None:
        raise InputError(
            f"{layout} needs {layout.num_ranks} ranks, got one process; start them with "
            f"torchrun --nproc-per-node {layout.num_ranks} -m qbench ..."
        )
    if world.size != layout.num_ranks:
        raise InputError(
            f"torchrun started {world.size} ranks, expected {layout.lanes} x pp = "
            f"{layout.num_lanes} x {layout.pp} = {layout.num_ranks}"
        )
    return world


def division_here(text: str) -> RankLayout:
    """The division among the ranks that torchrun started. raises InputError as `RankLayout.of` and `check_world`"""
    world = find_world()
    layout = RankLayout.of(text, 2 if world is None else world.size)
    check_world(layout)
    return layout


def refuse_on_ranks(options: Mapping[str, bool], layout: RankLayout) -> None:
    """raises InputError for the first option that is given; options: option -> whether it is"""
    for option, is_given in options.items():
        if is_given:
            raise InputError(f"{option} does not combine with {layout} yet; leave it out, or run on one rank")
