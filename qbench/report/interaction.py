"""Tables of interactions: mean KLD of each cell, over the sum of the losses of its recipe, KV format and policy."""

from collections.abc import Iterable, Sequence
from statistics import median

from qbench.measure.records.record import Record
from qbench.report.interaction_rows import Cell, Grid, Levels, interaction_grids
from qbench.report.kinds import origin
from qbench.report.recorded import recorded
from qbench.statistics.estimate import ALPHA
from qbench.words.read import count, markdown_grid

MISSING = "n/a"
AXES = ("recipe", "KV format", "policy")
UNNAMED = ("as stored", "f32", "full")


def interaction_markdown(records: Iterable[Record]) -> str:
    """A summary and one table per KV format for each grid; "" without a combination of two losses.

    records   the latest of each case of a sweep that was measured
    """
    return "\n".join(map(_grid, interaction_grids(records)))


def _grid(grid: Grid) -> str:
    row = grid.rows[grid.baseline]
    title = f"**{row.case.model} on {row.judged.machine.cpu}: loss of the whole over the sum of its parts**"
    tables = [_of_kv_format(grid, kv_format) for kv_format in grid.values(1)]
    return "\n\n".join([title, _summary(grid), *filter(None, tables), _footer(grid)]) + "\n"


def _summary(grid: Grid) -> str:
    """One line per kind of combination."""
    kinds: dict[tuple[int, ...], list[Cell]] = {}
    for cell in grid.cells.values():
        axes = tuple(axis for axis in range(3) if cell.levels[axis] != grid.baseline[axis])
        kinds.setdefault(axes, []).append(cell)
    lines = [
        [
            "axes that lose",
            "cells",
            "all wholes / all sums [95 %]",
            "median",
            "least",
            "most",
            "more than the sum",
            "less",
        ]
    ]
    for axes, cells in sorted(kinds.items(), key=lambda item: (len(item[0]), item[0])):
        ratios = [cell.whole / cell.expected for cell in cells]
        signs = [_sign(cell) for cell in cells]
        lines.append(
            [
                " + ".join(AXES[axis] for axis in axes),
                str(len(cells)),
                _pooled(grid, cells),
                *(f"{value:.2f}" for value in (median(ratios), min(ratios), max(ratios))),
                str(signs.count("+")),
                str(signs.count("-")),
            ]
        )
    return markdown_grid(lines, [False, *[True] * 7])


def _pooled(grid: Grid, cells: Sequence[Cell]) -> str:
    ratio = grid.pooled(cells)
    return MISSING if ratio is None else f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def _of_kv_format(grid: Grid, kv_format: str | None) -> str:
    """Rows are policies, columns are recipes; "" if the KV format has no cell."""
    recipes, policies = grid.values(0), grid.values(2)
    lines = [
        [recorded(policy), *(_text(grid, (recipe, kv_format, recorded(policy))) for recipe in recipes)]
        for policy in policies
    ]
    if not any((recipe, kv_format, policy) in grid.cells for recipe in recipes for policy in policies):
        return ""
    heading = f"KV format {kv_format or UNNAMED[1]}"
    head = [heading, *(recipe or UNNAMED[0] for recipe in recipes)]
    return markdown_grid([head, *lines], [False, *[True] * len(recipes)])


def _text(grid: Grid, levels: Levels) -> str:
    """ "2.57e-02 (1.04 +)": mean KLD, and its ratio to the expected sum if two losses meet"""
    if levels not in grid.rows:
        return MISSING
    kld = f"{recorded(grid.rows[levels].mean_kld):.2e}"
    cell = grid.cells.get(levels)
    if cell is None:
        return kld
    return f"{kld} ({cell.whole / cell.expected:.2f}{' ' * bool(_sign(cell))}{_sign(cell)})"


def _sign(cell: Cell) -> str:
    """ "+" if the whole is more than the sum, "-" if it is less, "" if that is unclear"""
    if cell.excess is None or cell.p_value is None or cell.p_value >= ALPHA:
        return ""
    return "+" if cell.excess.value > 0 else "-"


def _footer(grid: Grid) -> str:
    row = grid.rows[grid.baseline]
    names = [level or unnamed for level, unnamed in zip(grid.baseline, UNNAMED, strict=True)]
    blocks = row.quality.blocks if row.quality else None
    protocol = row.quality.protocol if row.quality else None
    told = (
        f"Cells: mean KLD, and in brackets its ratio to the sum of the losses of recipe, KV format and policy "
        f"alone (the others at the baseline {', '.join(names)}). + and -: the whole is more or less than the sum, "
    )
    basis = (
        f"paired over {count(len(blocks.tokens or ()), blocks.unit or 'block')}, p < {ALPHA:.2g} by Holm over "
        f"{count(grid.num_tests, 'test')}."
        if grid.num_tests and blocks
        else "which cannot be told here: the records keep too few blocks of text for a paired test."
    )
    parts = [f"protocol {protocol.name} ({protocol.hash})"] if protocol else []
    parts += [] if row.case.prefill_chunk is None else [f"prompts in chunks of {row.case.prefill_chunk}"]
    return f"{told}{basis}\n\n{'; '.join([*parts, origin([row.judged for row in grid.rows.values()])])}."
