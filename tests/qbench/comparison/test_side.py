import pytest
from support.sample_records import failed_record, make_record, sweep_records, write_records

from qbench.comparison.side import Rows, parse_side, select
from quant.errors import InputError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "results").mkdir()
    write_records(tmp_path / "results" / "m.jsonl", sweep_records())
    return tmp_path / "results"


def test_a_folder_of_records_and_conditions(folder):
    assert parse_side(str(folder)) == Rows(str(folder), {})
    assert parse_side(f"{folder}:recipe=q4_0,threads=2") == Rows(str(folder), {"recipe": "q4_0", "threads": "2"})


def test_the_second_side_may_be_in_the_place_of_the_first(folder):
    assert parse_side(":recipe=q4_0", str(folder)) == Rows(str(folder), {"recipe": "q4_0"})
    with pytest.raises(InputError, match="names no records"):
        parse_side(":recipe=q4_0")


def test_a_value_may_hold_a_colon(folder):
    assert parse_side(f"{folder}:model=ref:llama").where == {"model": "ref:llama"}


@pytest.mark.parametrize("word", ["ref:llama", "hf:org/name", "model.gguf", "rand:llama-3.2-1b"])
def test_models_are_no_rows(word):
    assert parse_side(word) is None


def test_a_model_directory_is_a_model(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "log.jsonl").write_text("")
    assert parse_side(str(tmp_path)) is None


@pytest.mark.parametrize("conditions", ["recipe=", "recipe=q4_0,threads", "=q4_0"])
def test_half_a_condition(folder, conditions):
    with pytest.raises(InputError, match="is no condition"):
        parse_side(f"{folder}:{conditions}")


def test_conditions_pick_rows_and_patterns_several(folder):
    assert [row.model_case.recipe for row in select(Rows(str(folder), {"recipe": "q4_0"}))] == ["q4_0"]
    assert [row.model_case.recipe for row in select(Rows(str(folder), {"recipe": "q4_*"}))] == ["q4_k_m", "q4_0"]
    assert len(select(Rows(str(folder), {"bench.pp": "512", "machine": "a1"}))) == len(sweep_records())


def test_the_latest_row_of_each_case_counts(folder):
    write_records(folder / "n.jsonl", [make_record("q4_0", perplexity=9.0)])
    (row,) = select(Rows(str(folder), {"recipe": "q4_0"}))
    assert row.figures.figure("perplexity") == 9.0


def test_the_latest_is_by_time_and_not_by_the_name_of_its_file(folder):
    write_records(folder / "z.jsonl", [make_record("q4_0", perplexity=9.0) | {"time": "2025-12-31T00:00:00"}])
    (row,) = select(Rows(str(folder), {"recipe": "q4_0"}))
    assert row.figures.figure("perplexity") != 9.0


def test_a_failed_case_is_not_a_row(tmp_path):
    path = write_records(tmp_path / "r.jsonl", [failed_record("q4_0", "out of memory")])
    with pytest.raises(InputError, match="no measured row"):
        select(Rows(str(path), {}))


@pytest.mark.parametrize(
    "where, message",
    [({"recipe": "q4_1"}, "there are bf16, .*; did you mean 'q4_0'"), ({"recip": "q4_0"}, "did you mean 'recipe'")],
    ids=["value", "key"],
)
def test_a_condition_without_rows_lists_the_existing_values(folder, where, message):
    with pytest.raises(InputError, match=message):
        select(Rows(str(folder), where))


@pytest.mark.parametrize(
    "axis, usual, other", [("policy", "full", "window:64"), ("compute", "fast", "exact")], ids=["policy", "compute"]
)
def test_rows_that_lack_an_axis_have_its_usual_value(folder, axis, usual, other):
    rows = sweep_records()
    changed = rows[0] | {"key": other, "case": rows[0]["case"] | {axis: other}}
    write_records(folder / "m.jsonl", [*rows, changed])
    assert len(select(Rows(str(folder), {axis: usual}))) == len(rows)
    assert [row.key for row in select(Rows(str(folder), {axis: other}))] == [other]
    with pytest.raises(InputError, match=f"no row with {axis}=none; there are {usual}, {other}"):
        select(Rows(str(folder), {axis: "none"}))
