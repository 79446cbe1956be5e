"""Rows of records against rows of records: picked out, paired, each pair with its noise floor, judged together."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from qbench.comparison.comparison import Comparison, collect, judge_table
from qbench.comparison.kept_launches import KeptLaunches, kept_launches
from qbench.comparison.side import Rows, identity, named_keys, parse_side, select, value_of
from qbench.measure.records.kinds import NOISE_FLOOR, FloorCase, FloorMetrics
from qbench.measure.records.record import Record
from qbench.statistics.cell import Floors, with_floors
from qbench.store import latest_records
from quant.errors import InputError

# Keys that follow from a recipe.
WITH_RECIPE = ("recipe_sha256", "kv_format")

Pairs = list[tuple[Record, Record]]


def pair_rows(a: Sequence[Record], b: Sequence[Record], named: Sequence[str]) -> tuple[Pairs, list[Record]]:
    """Each row of B with the one of A that has the same case and machine, apart from the named keys.

    named    keys that distinguish the sides; a single row on either side needs no key
    returns  the pairs, and the rows of B that have no counterpart in A and are not in A
    raises   InputError if no rows pair, naming the differing keys, and if several of A fit one of B
    """
    if len(a) == len(b) == 1:
        return [(a[0], b[0])], []
    of_a: dict[str, list[Record]] = {}
    for record in a:
        of_a.setdefault(_settings(record, named), []).append(record)
    pairs, alone = [], []
    of_a_alone = {identity(record) for record in a}
    for record in b:
        fitting = [other for other in of_a.get(_settings(record, named), ()) if identity(other) != identity(record)]
        if "kv_format" not in named and len(fitting) > 1:
            fitting = [other for other in fitting if value_of(other, "kv_format") == value_of(record, "kv_format")]
        if len(fitting) > 1:
            raise InputError(
                f"{len(fitting)} rows of A fit one of B; they differ in {_differing(fitting[0], fitting[1], named)}"
            )
        pairs += [(other, record) for other in fitting]
        alone += [record] if not fitting and identity(record) not in of_a_alone else []
    if not pairs:
        raise InputError(f"no row of A has its like in B; they also differ in {_differing(a[0], b[0], named)}")
    return pairs, alone


def _settings(record: Record, named: Sequence[str]) -> str:
    left_out = {*named, *(WITH_RECIPE if "recipe" in named else ())}
    case = {name: value for name, value in record.case.to_json().items() if name not in left_out}
    for key in (key for key in named if "." in key):
        section, _, name = key.partition(".")
        if isinstance(case.get(section), dict):
            case[section] = {other: value for other, value in case[section].items() if other != name}
    return json.dumps([case, None if "machine" in named else record.machine.id], sort_keys=True)


def _differing(a: Record, b: Record, named: Sequence[str]) -> str:
    """The keys, each with both values."""
    keys = [*dict.fromkeys([*a.case.to_json(), *b.case.to_json()]), "machine"]
    unlike = [key for key in keys if key not in named and value_of(a, key) != value_of(b, key)]
    return "; ".join(f"{key}: {value_of(a, key)} and {value_of(b, key)}" for key in unlike) or "time alone"


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


def kept_floors(paths: Sequence[str]) -> dict[tuple[str, str], dict[str, float]]:
    """(fingerprint of the model, protocol hash) -> metric -> floor; of several machines' the highest."""
    floors: dict[tuple[str, str], dict[str, float]] = {}
    for record in latest_records(paths, kinds=(NOISE_FLOOR,)).values():
        case, metrics = record.case, record.metrics
        if record.is_ok and isinstance(case, FloorCase) and isinstance(metrics, FloorMetrics):
            known = floors.setdefault((case.fingerprint or "", metrics.protocol_hash or ""), {})
            for metric, floor in (metrics.floor or {}).items():
                known[metric] = max(floor, known.get(metric, 0.0))
    return floors


def of_model(floors: Mapping[tuple[str, str], Mapping[str, float]], row: Record) -> Floors:
    """Those of `kept_floors` that are of a row's model: protocol hash -> metric -> floor."""
    model = getattr(row.case, "fingerprint", None)
    return {protocol: floor for (fingerprint, protocol), floor in floors.items() if fingerprint == model}
