"""Pairs of rows of A and B that differ only in the keys that were asked for."""

import json
from collections.abc import Sequence

from qbench.comparison.side import identity, value_of
from qbench.measure.records.record import Record
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
