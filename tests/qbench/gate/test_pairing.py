import json

import pytest
from support.gate_rows import MACHINE
from support.gate_rows import row as document

from qbench.gate.pairing import names_of, pair_cases, read_baseline
from qbench.measure.records.record import Record
from qbench.run.case import Case
from quant.errors import InputError

OTHER = MACHINE | {"id": "b" * 12, "cores": 4, "flags": ["avx2", "avx512f"]}


def row(*recipe: str, changes: dict | None = None, **given) -> Record:
    return Record.from_json(document(*recipe, **given) | (changes or {}))


def test_each_case_has_its_latest_row_of_this_machine():
    old = row(commit="old", changes={"commit": "old"})
    new = row(changes={"time": "2026-01-02T00:00:00+00:00"})
    foreign = row(machine=OTHER, changes={"time": "2026-01-03T00:00:00+00:00"})
    (pair,) = pair_cases([row()], [new, old, foreign], "base.jsonl")
    assert pair.baseline is new and pair.name == "ref:llama q4_k_m" and not pair.is_elsewhere


@pytest.mark.parametrize(
    "work, told", [({"pp": 9}, "pp 8, not 9"), ({"tg": 5}, "tg 4, not 5"), ({"depth": 64}, "depth 0, not 64")]
)
def test_the_model_may_have_changed_and_the_work_may_not(work, told):
    case = document()["case"] | {"fingerprint": "another", "recipe_sha256": "another"}
    changed = row(changes={"case": case})
    assert pair_cases([changed], [row()], "base.jsonl")
    changed = row(changes={"case": case | {"bench": {"pp": 8, "tg": 4, "depth": 0} | work}})
    with pytest.raises(InputError, match=rf"base.jsonl lacks ref:llama q4_k_m \(has {told}\)"):
        pair_cases([changed], [row()], "base.jsonl")


def test_missing_cases_are_named():
    with pytest.raises(InputError, match="lacks ref:llama bf16, ref:llama q8_0"):
        pair_cases([row("bf16"), row("q4_k_m"), row("q8_0")], [row("q4_k_m")], "base.jsonl")


def test_another_machine_is_refused_with_its_difference():
    with pytest.raises(InputError, match="flags avx2 there, avx2 avx512f here; cores 2 there, 4 here"):
        pair_cases([row(machine=OTHER)], [row()], "base.jsonl")
    (pair,) = pair_cases([row(machine=OTHER)], [row()], "base.jsonl", any_machine=True)
    assert pair.is_elsewhere and "cores 2 there, 4 here" in pair.elsewhere


def test_another_processor_of_the_same_id_is_compared_only_in_quality():
    zen4, zen5 = (MACHINE | {"processor": f"family {family}, model 2"} for family in (25, 26))
    (pair,) = pair_cases([row(machine=zen5)], [row(machine=zen4)], "base.jsonl")
    assert pair.is_elsewhere and pair.elsewhere == "processor family 25, model 2 there, family 26, model 2 here"
    own = row(machine=zen5)
    later = row(machine=zen4, changes={"time": "2026-01-03T00:00:00+00:00"})
    (pair,) = pair_cases([row(machine=zen5)], [own, later], "base.jsonl")
    assert pair.baseline is own and not pair.is_elsewhere
    (pair,) = pair_cases([row(machine=zen5)], [row()], "base.jsonl")
    assert not pair.is_elsewhere, "an old row names no processor"


def test_machines_with_equal_descriptions_differ_in_their_ids():
    with pytest.raises(InputError, match=f"of another machine: id twin there, {MACHINE['id']} here"):
        pair_cases([row()], [row(machine=MACHINE | {"id": "twin"})], "base.jsonl")


def test_names_contain_the_differing_settings():
    cases = [Case.from_json(document()["case"] | more) for more in ({}, {"threads": 2})]
    assert names_of(cases) == ["ref:llama q4_k_m, threads 1", "ref:llama q4_k_m, threads 2"]


def test_a_baseline_is_a_file_or_a_folder_with_rows_that_were_measured(tmp_path):
    file = tmp_path / "results" / "aaaa.jsonl"
    file.parent.mkdir()
    file.write_text(
        "\n".join(json.dumps(found) for found in (document(), document("bf16") | {"status": "error"})) + "\n"
    )
    assert [found.key for found in read_baseline(file)] == ["q4_k_m"]
    assert [found.key for found in read_baseline(file.parent)] == ["q4_k_m"]
    file.write_text(json.dumps(document() | {"status": "error"}) + "\n")
    with pytest.raises(InputError, match="no measured rows"):
        read_baseline(file)


def test_records_of_a_newer_schema_are_refused(tmp_path):
    file = tmp_path / "base.jsonl"
    file.write_text(json.dumps(document() | {"schema_version": 99}) + "\n")
    with pytest.raises(InputError, match="schema 99"):
        read_baseline(file)


def test_a_machine_that_rounds_the_same_way_is_taken_among_others():
    """AMX rounds inputs to bfloat16, and a later row of a machine that rounds them to 8 bits is another measurement."""
    with_tiles, another = (MACHINE | {"id": name * 12, "features": ["scalar", "amx"]} for name in "cd")
    same = row(machine=with_tiles)
    later = row(machine=OTHER, changes={"time": "2026-01-03T00:00:00+00:00"})
    (pair,) = pair_cases([row(machine=another)], [same, later], "base.jsonl", any_machine=True)
    assert pair.baseline is same and pair.is_elsewhere
    (pair,) = pair_cases([row(machine=another)], [later], "base.jsonl", any_machine=True)
    assert pair.baseline is later, "rather than none"
