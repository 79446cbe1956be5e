"""Rows of records against rows of records: picked out, paired, each pair with its noise floor, judged together."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from qbench.comparison.comparison import Comparison, collect, judge_table
from qbench.comparison.kept_floor import kept_floors, of_model
from qbench.comparison.kept_launches import KeptLaunches, kept_launches
from qbench.comparison.pairs import Pairs, pair_rows
from qbench.comparison.side import Rows, named_keys, parse_side, select
from qbench.measure.records.record import Record
from qbench.statistics.cell import with_floors
from quant.errors import InputError


def compare_sides(a: Rows, b: Rows) -> tuple[list[Comparison], str | None]:
    """Every row of B against its counterpart in A, and a line about rows without a counterpart.

    raises   InputError as `select` and `pair_rows`, and for unlike protocols
    """
    pairs, alone = pair_rows(select(a), select(b), named_keys((a, b)))
    names = ", ".join(f"{row.model_case.model} {row.model_case.recipe}" for row in alone)
    warning = f"not compared, for want of their like in A: {names}" if alone else None
    return compare_pairs(pairs, [a.path, b.path]), warning


def compare_with_baseline(rows: Rows, baseline: str) -> tuple[list[Comparison], str | None]:
    """Every row against that of the baseline, a recipe's name or KEY=VALUE,KEY=VALUE. raises InputError as above"""
    conditions = baseline if "=" in baseline else f"recipe={baseline}"
    return compare_sides(with_conditions(rows, conditions), rows)


def with_conditions(rows: Rows, conditions: str) -> Rows:
    more = parse_side(f":{conditions}", rows.path)
    return Rows(rows.path, {**rows.where, **(more.where if more else {})})


def compare_pairs(pairs: Pairs, paths: Sequence[str]) -> list[Comparison]:
    floors, launches = kept_floors(paths), kept_launches(paths)
    return judge_table([_collected(a, b, floors, launches) for a, b in pairs])


def _collected(a: Record, b: Record, floors: Mapping[tuple, Mapping[str, float]], launches: KeptLaunches) -> Comparison:
    try:
        found = collect(a, b, launches)
    except InputError as error:
        names = " and ".join(f"{row.model_case.model} {row.model_case.recipe or ''}".strip() for row in (a, b))
        raise InputError(f"{names}: {error}") from error
    return replace(found, cells=with_floors(found.cells, of_model(floors, a)))
