import csv
import io
import json
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner
from support.sample_records import SWEEP, failed_record, make_record, sweep_records, write_records

from qbench.cli.report import command
from qbench.report import load_records, render_report, write_report
from qbench.report.columns import columns_of
from qbench.report.table import build_tables
from qbench.report.write import markdown_table, to_csv, to_json, to_markdown, to_rows
from quant.errors import InputError


@pytest.fixture
def records(tmp_path):
    return lambda rows: write_records(tmp_path / "records.jsonl", rows)


def test_one_row_a_case_the_baseline_first_then_by_size(records):
    frame = load_records(records(sweep_records()))
    assert frame["recipe"].tolist() == ["bf16", "q8_0", "rtn-w8", "q6_k", "q5_k_m", "q4_k_m", "q4_0", "rtn-w4g128"]
    row = frame.set_index("recipe").loc["q4_0"]
    assert row["kld_mean"] == 2.7e-2 and row["tg_max"] == 1.02 * 209 and row["roofline_pp"] == 0.31
    assert row["protocol"] == "windows-1024" and row["impls"] == "reference, torch-bf16"


def test_the_latest_row_of_a_case_wins(records):
    frame = load_records(records([make_record("q8_0"), make_record("bf16"), make_record("q8_0", perplexity=7.0)]))
    assert dict(zip(frame["recipe"], frame["perplexity"], strict=True)) == {"bf16": 6.131, "q8_0": 7.0}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"machine": "another"}, id="machine"),
        pytest.param({"protocol": "another"}, id="protocol"),
        pytest.param({"model": "ref:other"}, id="model"),
    ],
)
def test_rows_that_do_not_compare_have_separate_tables(records, other):
    rows = [make_record("bf16"), make_record("q8_0"), make_record("q8_0", **other)]
    tables = build_tables(load_records(records(rows)))
    assert [table.columns["recipe"] for table in tables] == [["bf16", "q8_0"], ["q8_0"]]


def test_pareto_marks(records):
    (table,) = build_tables(load_records(records(sweep_records())))
    marks = dict(zip(table.columns["recipe"], table.columns["pareto"], strict=True))
    # bf16 has the least divergence, q8_0 is the fastest; each smaller file diverges more, so all are on the size front.
    assert {recipe for recipe, mark in marks.items() if "speed" in mark} == {"bf16", "q8_0"}
    assert all("size" in mark for mark in marks.values())
    (worse,) = build_tables(load_records(records([*sweep_records(), make_record("q6_k", size_bytes=5_000_000)])))
    assert dict(zip(worse.columns["recipe"], worse.columns["pareto"], strict=True))["q6_k"] == ""


def test_a_failed_case_stays_in_its_table_with_its_reason(records):
    rows = [*sweep_records()[:-1], failed_record("q4_0", "the worker was killed by SIGKILL")]
    (table,) = build_tables(load_records(records(rows)))
    assert table.failures == [("q4_0", "the worker was killed by SIGKILL")]
    markdown = to_markdown([table])
    assert "q4_0 failed: the worker was killed by SIGKILL" in markdown
    assert next(line for line in markdown.splitlines() if line.startswith("| q4_0")).count("n/a") >= 8


def test_the_protocol_is_shown_although_the_first_row_failed(records):
    (table,) = build_tables(load_records(records([failed_record("bf16", "out of memory"), *sweep_records()[1:]])))
    assert table.first("status") == "error" and "protocol windows-1024 (" in table.note


def test_every_form_has_the_same_values(records):
    tables = build_tables(load_records(records(sweep_records())))
    from_json = json.loads(to_json(tables))
    from_csv = list(csv.DictReader(io.StringIO(to_csv(tables))))
    assert [row["recipe"] for row in from_json] == [row["recipe"] for row in from_csv]
    for name in ("perplexity", "kld_mean", "tg_tok_s", "size_bytes", "peak_rss_bytes"):
        assert [row[name] for row in from_json] == [float(row[name]) for row in from_csv]
    lines = markdown_table(tables[0]).splitlines()
    assert len(lines) == 2 + len(SWEEP) and len({len(line) for line in lines}) == 1, "columns are aligned"
    assert (
        "| bf16 " in lines[2] and " 9.10e-06 [8.19e-06, 1.01e-05] " in lines[2] and " 6.131 [6.008, 6.254] " in lines[2]
    )


def test_an_unmeasured_value_is_never_a_number(records):
    record = make_record("q8_0", kld=None, kld_interval=None, same_top=None, perplexity=None, perplexity_interval=None)
    (row,) = to_rows(build_tables(load_records(records([record]))))
    assert row["kld_mean"] is None and row["perplexity"] is None and row["size_bytes"] > 0
    (table,) = build_tables(load_records(records([make_record("bf16"), record])))
    assert "n/a" in markdown_table(table)


def test_a_memory_limit_is_shown_even_if_all_rows_have_the_same(records):
    """A speed within 2 GiB must never be read as the speed of the whole model in memory."""
    offload = {"memory_limit_bytes": 2 << 30, "streamed_bytes": 3_032_600_000}
    (table,) = build_tables(load_records(records([make_record("q8_0", offload=offload)])))
    assert {"limit MiB", "read MB/step"} <= {column.heading for column in columns_of(table)}
    (free,) = build_tables(load_records(records([make_record("q8_0")])))
    assert not {"limit MiB", "read MB/step"} & {column.heading for column in columns_of(free)}


def test_report_files_are_all_there_and_no_others(records, tmp_path):
    folder = tmp_path / "new" / "folder"
    report = write_report(records(sweep_records()), folder)
    assert {path.name for path in folder.iterdir()} == {"report.md", "report.csv", "report.json", "report.html"}
    assert (folder / "report.md").read_text() == report.text and report.page == folder / "report.html"


def test_a_report_folder_that_cannot_be_made(records, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/out: cannot make the folder: File exists; choose another"):
        write_report(records(sweep_records()), tmp_path / "file" / "out")


def test_no_records(records, tmp_path):
    files = [records([]), tmp_path / "more.jsonl"]
    files[1].write_text('{"torn": ')
    with pytest.raises(InputError, match=f"^{files[0]}, {files[1]}: no records of a sweep; run `qbench sweep` first$"):
        write_report(tuple(files), tmp_path)


def test_the_cost_of_making_an_artifact_is_in_its_row(records):
    costs = {"quantize_seconds": 12.34, "quantize_peak_rss_bytes": 431_000_000}
    rows = [make_record("bf16", quantize_seconds=0.5), make_record("q4_0", **costs), make_record("q8_0")]
    bf16, q8_0, q4_0 = markdown_table(build_tables(load_records(records(rows)))[0]).splitlines()[2:]
    assert " 0.5 |         n/a |" in bf16 and " 12.3 |         431 |" in q4_0 and " n/a |         n/a |" in q8_0


def test_rows_of_other_kv_formats_are_in_one_table(records):
    rows = [make_record("q8_0"), make_record("q4_0")]
    rows[0]["case"]["kv_format"], rows[1]["case"]["kv_format"] = "f32", "kv-fp8"
    assert len(build_tables(load_records(records(rows)))) == 1


def test_the_kv_format_is_shown_if_one_recipe_comes_twice(tmp_path):
    dense, int8 = (make_record("q8_0"), make_record("q8_0"))
    dense["case"]["kv_format"], int8["case"]["kv_format"] = "f32", "kv-int8"
    int8["key"] += "-int8"
    alone = build_tables(load_records(write_records(tmp_path / "one.jsonl", [dense])))
    both = build_tables(load_records(write_records(tmp_path / "two.jsonl", [dense, int8])))
    assert "KV" not in [column.heading for column in columns_of(alone[0])]
    assert "KV" in [column.heading for column in columns_of(both[0])]
    assert sorted(both[0].columns["kv_format"]) == ["f32", "kv-int8"]


def test_the_note_names_the_processors_if_a_row_does(tmp_path):
    rows = [make_record("bf16"), make_record("q8_0")]
    assert "machine a1b2c3; " in render_report(write_records(tmp_path / "old.jsonl", rows), "md")
    rows[1]["machine"] = rows[1]["machine"] | {"processor": "family 26, model 2"}
    text = render_report(write_records(tmp_path / "new.jsonl", rows), "md")
    assert "machine a1b2c3: Some Processor (unknown), Some Processor (family 26, model 2); " in text


def test_the_note_names_the_units_of_the_roofline(tmp_path):
    units = {"int8": "amx int8", "bf16": "amx bf16"}
    newer = make_record("bf16", roofline={"pp": 0.5, "tg": 0.4, "bandwidth_of": "round", "units": units})
    for row, rest in ((newer, ""), (make_record("q8_0"), ", in 1 older row at the arithmetic that ran")):
        path = write_records(tmp_path / f"{len(rest)}.jsonl", [newer] if row is newer else [newer, row])
        note = "operations at the strongest unit that could do them: amx bf16, amx int8"
        assert f"{note}{rest}; commit" in render_report(path, "md")
    assert "strongest" not in render_report(write_records(tmp_path / "old.jsonl", [make_record("q8_0")]), "md")


def test_a_batch_is_named_in_the_note(tmp_path):
    one, four = make_record("q8_0"), make_record("q8_0")
    four["case"]["batch"] = 4
    notes = [build_tables(load_records(write_records(tmp_path / "r.jsonl", [row])))[0].note for row in (one, four)]
    assert "batch" not in notes[0] and "batch 4" in notes[1]


def test_tasks_and_further_protocols_have_columns(records):
    task = {
        "metric": "acc",
        "value": 0.625,
        "error": 0.1,
        "interval": [0.3, 0.86],
        "num_items": 8,
        "protocol_hash": "a",
    }
    score = task | {"metric": "word_perplexity", "value": 12.5, "interval": None}
    further = {"perplexity": 5.25, "perplexity_interval": [5.0, 5.5], "protocol": {"hash": "b"}}
    own = {"perplexity": 6.0, "perplexity_interval": None, "protocol": {"hash": "f00d"}}
    protocols = {"windows-1024": own, "llama.cpp-512": further}
    rows = [make_record("bf16"), make_record("q8_0", tasks={"arc": task, "wikitext": score}, protocols=protocols)]
    (table,) = build_tables(load_records(records(rows)))
    names = ["recipe", "task:arc", "task:wikitext", "perplexity:llama.cpp-512"]
    assert markdown_table(table, names).splitlines() == [
        "| recipe |     arc acc % [95 %] | wikitext word_perplexity | perplexity llama.cpp-512 [95 %] |",
        "| ------ | -------------------: | -----------------------: | ------------------------------: |",
        "| bf16   |                  n/a |                      n/a |                             n/a |",
        "| q8_0   | 62.50 [30.00, 86.00] |                  12.5000 |            5.250 [5.000, 5.500] |",
    ]
    assert " arc acc % [95 %] " in markdown_table(table) and "llama.cpp-512" not in markdown_table(table)


def test_a_table_names_the_question_that_a_policy_saw(tmp_path):
    seen = make_record("bf16")
    seen["case"]["tasks"] = {"names": ["recall"], "question": "hidden"}
    notes = [
        build_tables(load_records(write_records(tmp_path / "r.jsonl", [row])))[0].note
        for row in (make_record("bf16"), seen)
    ]
    assert "--question hidden" not in notes[0] and "--question hidden" in notes[1]


def test_a_report_waits_for_no_torch():
    look = "import qbench.report, sys; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", look], text=True) == "False\n"


def test_columns_are_picked_by_the_names_of_the_records(records):
    (table,) = build_tables(load_records(records(sweep_records())))
    heading, _, first, *_ = markdown_table(table, ["family", "size_bytes", "recipe"]).splitlines()
    assert [cell.strip() for cell in heading.strip("|").split("|")] == ["family", "size MB", "recipe"]
    assert [cell.strip() for cell in first.strip("|").split("|")] == ["unquantized", "9.70", "bf16"]
    with pytest.raises(InputError, match="unknown column 'size'; known: recipe, model"):
        markdown_table(table, ["size"])


def test_overhead_is_shown_as_a_share_of_a_case(tmp_path):
    rows = [make_record("bf16", wall_seconds=40.0, overhead_seconds=1.0), make_record("q8_0")]
    text = render_report(write_records(tmp_path / "records.jsonl", rows), "md", ["recipe", "overhead_share"])
    lines = [line for line in text.splitlines() if line.startswith(("| bf16", "| q8_0"))]
    assert [line.split("|")[2].strip() for line in lines] == ["2.5", "n/a"]


def test_only_the_rows_that_a_rule_matches_are_shown(tmp_path):
    path = write_records(tmp_path / "records.jsonl", sweep_records())
    run = CliRunner().invoke
    shown = run(command, [str(path), "--only", "recipe=q8_0|q4_*", "--columns", "recipe"])
    assert shown.exit_code == 0
    assert re.findall(r"^\| (\w+) *\|", shown.output, re.MULTILINE) == ["recipe", "q8_0", "q4_k_m", "q4_0"]
    rows = json.loads(run(command, [str(path), "--only", "recipe=bf16", "--json"]).output)
    assert [row["recipe"] for row in rows] == ["bf16"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [("recipe=q9_0", "--only recipe=q9_0 matches none of the 8 rows"), ("size=4", "unknown axis 'size'")],
)
def test_a_rule_that_matches_nothing_is_refused(tmp_path, rule, message):
    path = write_records(tmp_path / "records.jsonl", sweep_records())
    done = CliRunner().invoke(command, [str(path), "--only", rule])
    assert done.exit_code != 0 and message in str(done.exception)
