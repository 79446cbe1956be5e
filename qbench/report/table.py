"""The tables to decide from: one per group, Pareto points marked; a frame's columns as lists, made when asked for."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qbench.measure.host.machine import processors_text
from qbench.report.extra_columns import with_extra
from qbench.report.family import recipe_family
from qbench.report.launches import LAUNCHES, PHASES, SECONDS, SPREAD, launches_text
from qbench.run.choices import FAST
from qbench.store.load import ALL_TOKENS
from qbench.words.read import ROOFLINE_LEGEND, count, short_commit, units_notes

if TYPE_CHECKING:
    import pandas as pd


class Lists(Mapping[str, list[Any]]):
    """name -> the values of that column, as Python's own."""

    def __init__(self, frame: "pd.DataFrame") -> None:
        self.frame = frame
        self.made: dict[str, list[Any]] = {}

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self.made:
            self.made[name] = self.frame[name].tolist()
        return self.made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.frame)

    def __len__(self) -> int:
        return self.frame.shape[1]


class Part(Mapping[str, list[Any]]):
    """Rows `start` to `end` of lists."""

    def __init__(self, whole: Mapping[str, list[Any]], start: int, end: int) -> None:
        self.whole, self.start, self.end = whole, start, end

    def __getitem__(self, name: str) -> list[Any]:
        return self.whole[name][self.start : self.end]

    def __iter__(self) -> Iterator[str]:
        return iter(self.whole)

    def __len__(self) -> int:
        return len(self.whole)


MARKS = ("", "size", "speed", "size speed")  # by the fronts that a row is on: 1 of size, 2 of speed


def is_missing(value: Any) -> bool:
    """Also a number that no float holds: a column has it as infinity, which JSON lacks."""
    return value is None or value != value or (isinstance(value, float) and math.isinf(value))


SPEED_COLUMN = re.compile("tok_s|roofline")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that compare with one another, the unquantized first, then by size.

    columns  name -> one value per row: those of `load_records` and `with_extra`, `pareto` and `family`. Lists, since
             there may be thousands of small tables, and a frame each takes longer than all else
    """

    group: str
    columns: Mapping[str, list[Any]]

    def first(self, name: str) -> Any:
        return self.columns[name][0]

    @property
    def title(self) -> str:
        return f"{self.first('model')} on {self.first('cpu')}"

    @property
    def processors(self) -> str:
        names, processors = (
            [None if is_missing(one) else one for one in self.columns[k]] for k in ("cpu", "processor")
        )
        return processors_text(zip(names, processors, strict=True))

    @property
    def note(self) -> str:
        return self.note_for(None)

    def note_for(self, columns: Sequence[str] | None) -> str:
        """One sentence that a reader needs: conditions, machine and code of the measurement.

        columns  that the table shows; without a speed nothing is said about speeds. None: the usual ones
        """
        parts = [
            f"{count(self.first('threads'), 'thread')} of {count(self.first('cores'), 'core')}",
            f"machine {self.first('machine')}{self.processors}",
        ]
        if self.first("batch") > 1:
            parts.insert(1, f"batch {self.first('batch'):.0f}")
        if self.first("compute") != FAST:
            parts.insert(0, f"{self.first('compute')} compute")
        if not is_missing(self.first("question")):
            parts.insert(0, f"--question {self.first('question')}")
        protocols = zip(self.columns["protocol"], self.columns["protocol_hash"], strict=True)
        known = next((pair for pair in protocols if not any(map(is_missing, pair))), None)  # not a failed row
        if known:
            parts.insert(0, "protocol {} ({})".format(*known))
        if not is_missing(self.first("text")):
            parts.insert(0, f"text {self.first('text')}")
        if columns is None or any(SPEED_COLUMN.search(name) for name in columns):
            parts += launch_notes(self.columns)
            parts += roofline_notes(self.columns)
        commits = dict.fromkeys(map(short_commit, self.columns["commit"], self.columns["dirty"]))
        parts.append("commit " + ", ".join(commits))
        return "; ".join(parts)

    @property
    def failures(self) -> list[tuple[str, str]]:
        rows = zip(*(self.columns[name] for name in ("status", "recipe", "error")), strict=True)
        return [(recipe, error) for status, recipe, error in rows if status != "ok"]


def launch_notes(columns: Mapping[str, list[Any]]) -> list[str]:
    """How many launches each speed has, and their spread; nothing for a table without speeds."""
    if all(is_missing(value) for phase in PHASES for value in columns[f"{phase}_tok_s"]):
        return []
    known = [phase for phase in PHASES if not all(map(is_missing, columns.get(LAUNCHES.format(phase), ())))]
    if not known:
        return ["speeds: one process each, so they have no interval and no verdict"]
    counts, seconds = (
        [value for value in columns[name.format(known[0])] if not is_missing(value)] for name in (LAUNCHES, SECONDS)
    )
    spreads = {phase: [value for value in columns[SPREAD.format(phase)] if not is_missing(value)] for phase in known}
    return [launches_text(counts, seconds, spreads)]


def roofline_notes(columns: Mapping[str, list[Any]]) -> list[str]:
    """The definition of the shares of the roofline, if there are any."""
    names = ("roofline_pp", "roofline_tg", "roofline_of", "roofline_units")
    shares = zip(*(columns[name] for name in names), strict=True)
    rows = [(of, units) for pp, tg, of, units in shares if not (is_missing(pp) and is_missing(tg))]
    found = [is_missing(of) for of, _ in rows]
    notes = [] if all(found) else [ROOFLINE_LEGEND]
    if any(found):
        which = "shares of the roofline" if all(found) else f"in {count(sum(found), 'older row')}"
        notes.append(f"{which}: at the larger of two bandwidths, read before and after the case")
    notes += units_notes([() if is_missing(units) else units.split(", ") for _, units in rows])
    if counted := columns["roofline_of"].count(ALL_TOKENS):
        older = count(counted, "older row")
        notes.append(f"no share of the roofline in {older}: the bound counts tokens that the policy does not keep")
    return notes


def build_tables(frame: "pd.DataFrame") -> list[Table]:
    """One table a group, in the order of their first rows, Pareto points marked."""
    codes, groups = frame["group"].factorize()
    frame = with_extra(frame).take(np.argsort(codes, kind="stable"))  # a group's rows side by side, in their order
    ends = np.bincount(codes, minlength=len(groups)).cumsum().tolist()
    places = list(zip([0, *ends], ends, strict=False))
    measured = Lists(frame)
    marks = [mark for place in places for mark in _pareto_marks(Part(measured, *place))]
    whole = Lists(frame.assign(pareto=marks, family=frame["recipe"].map(recipe_family)))
    return [Table(str(group), Part(whole, *place)) for group, place in zip(groups, places, strict=True)]


def _pareto_marks(columns: Mapping[str, list[Any]]) -> list[str]:
    """ "size", "speed", both or "": axes on which no other row has better quality at the same cost."""
    quality, size, speed = (_numbers(columns[name]) for name in (_quality_column(columns), "size_bytes", "tg_tok_s"))
    by_size, by_speed = (pareto_front(np.stack([quality, cost], axis=1)) for cost in (size, -speed))
    return [MARKS[i] for i in (by_size + 2 * by_speed).tolist()]


def _quality_column(columns: Mapping[str, list[Any]]) -> str:
    """Column of quality: divergence if it was measured, otherwise perplexity."""
    return "perplexity" if all(map(is_missing, columns["kld_mean"])) else "kld_mean"


def _numbers(values: Sequence[float | None]) -> np.ndarray:
    """float64, NaN where missing"""
    return np.array(values, dtype=np.float64)


def pareto_front(costs: np.ndarray) -> np.ndarray:
    """True for each point that no other equals or betters in every cost and betters in one.

    costs    [N, C] float, smaller is better; NaN (not measured) is on no front and beats nobody
    returns  [N] bool

    In the order of the first cost, ties by the next, nobody is beaten by one who comes later. So the first that is left
    is on the front, and those that it beats leave: as many passes as the front has points.
    """
    costs = np.asarray(costs, dtype=np.float64)
    front = np.zeros(len(costs), dtype=bool)
    left = np.flatnonzero(~np.isnan(costs).any(axis=1))
    left = left[np.lexsort(costs[left].T[::-1])]
    while len(left):
        first, left = left[0], left[1:]
        front[first] = True
        point, others = costs[first], costs[left]  # [C], [L, C]
        left = left[(others < point).any(axis=1) | (others == point).all(axis=1)]
    return front
