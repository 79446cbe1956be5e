"""One metric of two rows: the change from A to B, and how sure it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from qbench.statistics.estimate import ALPHA, Estimate
from qbench.statistics.verdict import (
    Verdict,
    detectable_difference,
    detectable_flips,
    detectable_ratio,
    holm,
    needed_samples,
    verdict,
)
from quant.json_data import JsonData

Kind = Literal["ratio", "difference"]
NEUTRAL = {"ratio": 1.0, "difference": 0.0}
TOO_FEW = "no interval from {}, so no verdict: it takes at least two that do not change by the very same amount"
# Protocol hash -> metric -> distance of a model from itself.
Floors = Mapping[str | None, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Flips(JsonData):
    """The items that turned from right to wrong and from wrong to right, and the number of all items."""

    right_to_wrong: int
    wrong_to_right: int
    num_items: int


@dataclass(frozen=True, slots=True)
class Cell(JsonData):
    """A metric of A and B, with `estimate` = B over A or B minus A.

    unit            of a task that is not scored right or wrong: the name of its metric
    exact           bytes: counted, so that any change is one
    flips           of a task's items
    note            reason if there is no interval, or a limit of the interval
    is_tested       False: another cell has the same content, so that it has no verdict and no part in the correction
    num_blocks      or items of a task that the estimate is paired over, or launches per side of a speed; None: right or
                    wrong items, or no pairs
    protocol_hash   of the convention that a text was measured under, or of the task
    floor           distance of the same model from itself, from the neutral value; None: not measured
    holm_p_value, verdict, detectable   given by `judge`, which sees the whole table
    needed          blocks, items or launches that would decide a change as large as the one found; of a "same"
    """

    metric: str  # "kld", or with several conventions "kld (gptq-2048)"
    a: float
    b: float
    kind: Kind
    lower_is_better: bool
    estimate: Estimate
    unit: str | None = None
    exact: bool = False
    flips: Flips | None = None
    note: str | None = None
    is_tested: bool = True
    num_blocks: int | None = None
    protocol_hash: str | None = None
    floor: float | None = None
    holm_p_value: float | None = None
    verdict: Verdict | None = None
    detectable: float | None = None
    needed: int | None = None

    @property
    def kind_of_metric(self) -> str:
        """The metric without its convention."""
        return self.metric.partition(" (")[0]

    @property
    def is_within_floor(self) -> bool:
        """Whether it is "same" for being too small to matter, sure as it is."""
        return self.verdict == "same" and self.holm_p_value is not None and self.holm_p_value < ALPHA


def judge(cells: Sequence[Cell]) -> list[Cell]:
    """The cells of a table, each with its verdict: p values are corrected for all of them together."""
    p_values = [cell.estimate.p_value if cell.is_tested else None for cell in cells]
    num_tested = sum(p_value is not None for p_value in p_values)
    alpha = ALPHA / max(1, num_tested)  # of the first step, which every difference passes if no other one is there
    judged = []
    for cell, adjusted in zip(cells, holm(p_values), strict=True):
        if adjusted is not None:
            cell = replace(cell, holm_p_value=adjusted, detectable=_detectable(cell, alpha))
        cell = replace(cell, verdict=_verdict(cell))
        judged.append(replace(cell, needed=_needed(cell, alpha) if cell.verdict == "same" else None))
    return judged


def why_untold(estimate: Estimate, num_blocks: int, unit: str) -> str | None:
    """Note on an estimate of so many blocks without an interval; None if it has one."""
    return TOO_FEW.format(f"{num_blocks} {unit}{'s' if num_blocks > 1 else ''}") if estimate.low is None else None


def with_floors(cells: Sequence[Cell], floors: Floors) -> list[Cell]:
    """Each cell with the floor of its own protocol: that of another text or window says nothing of it.

    A share of tokens on which two models agree has no floor. How often a model disagrees with itself, computed
    otherwise, is no difference of two agreements with a third: near ties fall either way, and in the difference cancel.
    """
    of_protocol = (floors.get(cell.protocol_hash, {}) for cell in cells)
    return [
        replace(cell, floor=None if cell.kind_of_metric == "same_top" else known.get(cell.kind_of_metric))
        for cell, known in zip(cells, of_protocol, strict=True)
    ]


def _verdict(cell: Cell) -> Verdict | None:
    if not cell.is_tested:
        return None
    return verdict(
        cell.estimate,
        neutral=NEUTRAL[cell.kind],
        lower_is_better=cell.lower_is_better,
        p_value=0.0 if cell.exact else cell.holm_p_value,
        floor=cell.floor or 0.0,
    )


def _needed(cell: Cell, alpha: float) -> int | None:
    num_samples = cell.num_blocks if cell.flips is None else cell.flips.num_items
    if num_samples is None or cell.exact:
        return None
    return needed_samples(num_samples, cell.estimate, neutral=NEUTRAL[cell.kind], floor=cell.floor or 0.0, alpha=alpha)


def _detectable(cell: Cell, alpha: float) -> float | None:
    if cell.flips is not None:
        flips = cell.flips
        return detectable_flips(flips.right_to_wrong + flips.wrong_to_right, flips.num_items, alpha=alpha)
    find = detectable_ratio if cell.kind == "ratio" else detectable_difference
    return find(cell.estimate, floor=cell.floor or 0.0, alpha=alpha)
