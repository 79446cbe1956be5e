import os
from pathlib import Path

import pandas as pd
import pytest
from support.measured_twice import RECIPES, measured, second
from support.sample_records import make_record, sweep_records, write_records

import qbench
from qbench.report.launches import with_launches
from qbench.store import load_records, query, schema
from quant.errors import InputError

SCHEMA_1 = Path(__file__).parents[1] / "measure" / "records" / "schema_1.jsonl"


@pytest.fixture
def records(tmp_path) -> Path:
    return write_records(tmp_path / "r.jsonl", sweep_records())


def test_results_are_the_rows_of_the_table(records):
    answer = query("select recipe, kld_mean from results", records)
    frame = load_records(records)
    assert answer.rows == list(zip(frame["recipe"], frame["kld_mean"], strict=True))
    assert answer.names == ["recipe", "kld_mean"] and answer.types == ["VARCHAR", "DOUBLE"]


def test_every_column_of_the_table_can_be_named(records):
    listed = [row[1] for row in schema(records).rows if row[0] == "results"]
    assert listed == [*load_records(records), "launches"] and {row[0] for row in schema(records).rows} == {
        *("results", "kernels", "versus", "records")
    }
    query("select {} from results".format(", ".join(f'"{name}"' for name in listed)), records)


def test_speeds_are_the_mean_of_all_launches(tmp_path):
    failed = second(measured(RECIPES[2]), 9.0) | {"status": "failed", "metrics": None}
    other_code = second(measured(RECIPES[3]), 9.0, code="other")
    rows = [*map(measured, RECIPES), second(measured(RECIPES[0]), 4.0), failed, other_code]
    third = second(measured(RECIPES[0]), 2.0)
    rows.append(third | {"key": "third", "case": third["case"] | {"launch": 3}})
    records = write_records(tmp_path / "r.jsonl", rows)
    found = query("select recipe, pp_tok_s / 5000, tg_tok_s / 400, launches from results", records).rows
    assert dict((row[0], row[1:]) for row in found) == {
        RECIPES[0]: (pytest.approx(2.0), pytest.approx(2.0), 3),
        **dict.fromkeys(RECIPES[1:], (1.0, 1.0, 1)),
    }
    expected = with_launches(load_records(records), records)
    of_first = query(f"select pp_tok_s from results where recipe = '{RECIPES[0]}'", records).rows[0][0]
    assert of_first == pytest.approx(expected.set_index("recipe").pp_tok_s[RECIPES[0]])


def test_the_schema_needs_no_records(records):
    assert schema().rows == schema(records).rows


def test_records_are_every_row_once_with_all_that_it_holds(tmp_path):
    first = make_record("q8_0", perplexity=7.0) | {"time": "2026-01-01T00:00:00"}
    second = make_record("q8_0", perplexity=8.0) | {"time": "2026-01-02T00:00:00"}
    run = write_records(tmp_path / "run.jsonl", [first, second])
    kept = write_records(tmp_path / "kept.jsonl", [first])
    sql = "select metrics->>'$.perplexity', \"case\"->>'$.recipe', machine->>'$.cpu', model from records order by time"
    assert query(sql, [kept, run]).rows == [(v, "q8_0", "Some Processor", "ref:llama") for v in ("7.0", "8.0")]
    assert query("select perplexity from results", [kept, run]).rows == [(8.0,)]


def test_kernels_and_files_next_to_llama_cpp_have_separate_tables():
    (row,) = query("select op, tokens, impl, round(share, 3) from kernels", SCHEMA_1).rows
    assert row == ("attention_f32", 1, "avx512_vnni", 0.943)
    (row,) = query("select model, tg, tg_ours_tok_s / tg_theirs_tok_s > 1, tg_ratio > 1 from versus", SCHEMA_1).rows
    assert row[0].endswith(".gguf") and row[2:] == (True, True)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("select nothing from results", r'^SQL: Binder Error: Referenced column "nothing" not found'),
        ("select * from result", 'Did you mean "results"'),
        ("select avgg(perplexity) from results", 'Function with name avgg does not exist! Did you mean "avg"'),
        ("with x as (insert into results select * from results) select 1", "^SQL: "),
        ("with x as (insert into results values (1) returning 1) from x", "^SQL: "),
        ("selec 1", "syntax error at or near"),
        ("", "expected one SELECT"),
        ("select 1 from results; select 2", "expected one SELECT"),
        ("delete from results", "expected one SELECT"),
        ("create table t as from results", "expected one SELECT"),
        ("copy results to 'out.csv'", "expected one SELECT"),
        ("explain analyze copy (select 1) to 'out.csv'", "expected one SELECT"),
        ("/**/ explain /* \u00e9 */ analyse -- x\n copy results to 'out.csv'", "expected one SELECT"),
        ("explain (analyze true, format json) delete from results", "expected one SELECT"),
        ("explain create table t as from results", "expected one SELECT"),
        ("copy (select 1) to 'out.csv'", "expected one SELECT"),
        ("set threads = 1", "expected one SELECT"),
        ("attach 'out.db'", "expected one SELECT"),
        ("install httpfs", "expected one SELECT"),
        ("from read_csv('/etc/passwd')", "file system operations are disabled"),
        ("from results, '/etc/passwd'", "SQL: "),
        ("select recipe::int from results", "Could not convert string"),
    ],
)
def test_a_statement_without_a_question_is_refused_in_one_line(records, monkeypatch, sql, why):
    monkeypatch.chdir(records.parent)
    with pytest.raises(InputError, match=why) as refusal:
        query(sql, records)
    assert "\n" not in str(refusal.value) and os.listdir(records.parent) == ["r.jsonl"]


@pytest.mark.parametrize(
    "sql",
    [
        "explain select kld_mean from results",
        "explain analyze from results",
        "explain (format json) select '\u00e9' from results -- \u00fc",
        "explain (select 1) union (from (select count(*) from results))",
    ],
)
def test_a_select_is_explained(records, sql):
    (row,) = query(sql, records).rows
    assert row[0] in ("physical_plan", "analyzed_plan") and "kernels" not in row[1]


@pytest.mark.parametrize("sql", ["from read_text('.tmp/secret')", "from read_text('.tmp/*')", "from glob('.tmp/*')"])
def test_temporary_files_of_the_working_folder_stay_closed(records, monkeypatch, sql):
    """DuckDB opens its folder of temporary files to every query, even if other files are closed."""
    monkeypatch.chdir(records.parent)
    os.mkdir(".tmp")
    Path(".tmp/secret").write_text("secret")
    with pytest.raises(InputError, match="disabled by configuration"):
        query(sql, records)
    assert os.listdir(".tmp") == ["secret"]


def test_a_folder_without_records_is_reported(records, tmp_path):
    with pytest.raises(InputError, match=r"no records for this query in .*kernels has the latest"):
        query("from kernels", records)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no \.jsonl file of records in this folder"):
        query("from results", tmp_path / "empty")


def test_results_in_python(records, monkeypatch):
    frame = qbench.results(records)
    pd.testing.assert_frame_equal(frame, load_records(records))
    monkeypatch.chdir(records.parent)
    with pytest.raises(InputError, match="no records in results or runs here"):
        qbench.results()
    os.makedirs("results/begun")  # by a run that wrote no row
    with pytest.raises(InputError, match="no records in results or runs here"):
        qbench.results()
    os.mkdir("runs")
    os.rename("r.jsonl", "runs/r.jsonl")
    pd.testing.assert_frame_equal(qbench.results().assign(suite=""), frame.assign(suite=""))
