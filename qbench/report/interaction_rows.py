"""The loss of weights, KV format and policy together against the sum of their losses alone, paired by block of text.

A cell is one recipe, one KV format and one policy. Its expected loss is the sum of three losses: that of the recipe,
that of the KV format and that of the policy, each with the other two at their baseline. The excess is the cell's mean
KLD minus the expected one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qbench.measure.records.record import Record
from qbench.report.policy_rows import PolicyRow, policy_rows, setting
from qbench.report.recorded import recorded
from qbench.run.cache_spec import FULL
from qbench.statistics.estimate import Estimate
from qbench.statistics.paired import Together, kld_excess
from qbench.statistics.verdict import holm

# recipe, KV format, policy; None: as stored, f32
Levels = tuple[str | None, str | None, str]


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of which at least two axes differ from the baseline.

    whole     mean KLD
    expected  sum of the mean KLDs of its axes alone
    excess    whole minus expected, with its error; None: the text has too few blocks, or blocks were not kept
    p_value   of no excess, by Holm over all cells of the grid
    """

    levels: Levels
    whole: float
    expected: float
    excess: Estimate | None
    p_value: float | None


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows that compare, and the cells between them.

    baseline  the recipe of most bits per weight, the KV format that loses least with it, and the full cache
    rows      of every combination that was measured
    """

    baseline: Levels
    rows: dict[Levels, PolicyRow]
    cells: dict[Levels, Cell]

    @property
    def num_tests(self) -> int:
        return sum(cell.p_value is not None for cell in self.cells.values())

    def pooled(self, cells: Sequence[Cell]) -> Estimate | None:
        """The sum of the cells' losses over the sum of their expected losses; None as for `Cell.excess`."""
        sums = [_together(self.rows, self.baseline, cell.levels) for cell in cells]
        kept = [each for each in sums if each is not None]
        if not kept or len(kept) < len(sums):
            return None
        excess, expected = kld_excess(kept), sum(cell.expected for cell in cells)
        if excess.low is None or excess.high is None:
            return None
        return Estimate(1 + excess.value / expected, None, 1 + excess.low / expected, 1 + excess.high / expected)

    def values(self, axis: int) -> list[str | None]:
        """Levels of an axis as they come in the records, the baseline first."""
        found = dict.fromkeys([self.baseline[axis], *(levels[axis] for levels in self.rows)])
        return list(found)


def interaction_grids(records: Iterable[Record]) -> list[Grid]:
    """One grid per model, machine, protocol and size of chunks that has at least one cell."""
    groups: dict[tuple[object, ...], list[PolicyRow]] = {}
    for row in policy_rows(records):
        if row.mean_kld is None:
            continue
        key = (*setting(row.judged), row.case.cache, row.case.prefill_chunk, row.protocol, row.metrics.reference)
        groups.setdefault(key, []).append(row)
    grids = (_grid({levels_of(row): row for row in rows}) for rows in groups.values())
    return [grid for grid in grids if grid is not None and grid.cells]


def levels_of(row: PolicyRow) -> Levels:
    return row.case.recipe, row.case.kv_format, row.case.policy


def _grid(rows: dict[Levels, PolicyRow]) -> Grid | None:
    full = {levels: row for levels, row in rows.items() if levels[2] == FULL}
    if not full:
        return None
    recipe = max(full, key=lambda levels: full[levels].metrics.figure("bits_per_weight") or 0.0)[0]
    of_recipe = [levels for levels in full if levels[0] == recipe]
    baseline = min(of_recipe, key=lambda levels: recorded(full[levels].mean_kld))
    found = [_cell(rows, baseline, levels) for levels in rows]
    cells = [cell for cell in found if cell is not None]
    p_values = holm([cell.excess and cell.excess.p_value for cell in cells])
    corrected = (
        Cell(cell.levels, cell.whole, cell.expected, cell.excess, p) for cell, p in zip(cells, p_values, strict=True)
    )
    return Grid(baseline, rows, {cell.levels: cell for cell in corrected})


def alone(levels: Levels, baseline: Levels) -> list[Levels]:
    """Per axis that differs from the baseline: that axis at its level, the others at the baseline."""
    recipe, kv_format, policy = levels
    each: list[Levels] = [
        (recipe, baseline[1], baseline[2]),
        (baseline[0], kv_format, baseline[2]),
        (baseline[0], baseline[1], policy),
    ]
    return [single for single in each if single != baseline]


def _cell(rows: dict[Levels, PolicyRow], baseline: Levels, levels: Levels) -> Cell | None:
    """None if fewer than two axes differ from the baseline, or a combination of the sum was not measured."""
    singles = alone(levels, baseline)
    if len(singles) < 2 or any(single not in rows for single in singles):
        return None
    floor = recorded(rows[baseline].mean_kld)
    expected = floor + sum(recorded(rows[single].mean_kld) - floor for single in singles)
    together = _together(rows, baseline, levels)
    excess = None if together is None else kld_excess([together])
    return Cell(levels, recorded(rows[levels].mean_kld), expected, excess, None)


def _together(rows: dict[Levels, PolicyRow], baseline: Levels, levels: Levels) -> Together | None:
    """None if a row of the sum lacks the sums per block of text."""
    found = [rows[each].quality for each in (levels, baseline, *alone(levels, baseline))]
    blocks = [quality.blocks if quality else None for quality in found]
    kept = [each for each in blocks if each is not None and each.kld is not None]
    return Together(kept[0], kept[2:], kept[1]) if len(kept) == len(blocks) else None
