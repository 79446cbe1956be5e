"""`compare` of several ranks: its divisions, and the cases of kept rows."""

import json

import pytest
from support.launched_ranks import run_ranks

from qbench.cli.main import main
from qbench.cli.rank_compare import CASE_KEYS, SETTINGS, settings
from qbench.comparison.several_ranks import EQUAL, REFUSED, WITHIN, RankDistance
from qbench.measure.records.kept_ranks import RanksMetrics
from qbench.measure.records.kept_row import keep_row
from qbench.measure.records.record import read_records
from qbench.run.options import RunOptions


@pytest.mark.parametrize(("prefill", "kept"), [("dense", {}), ("star:25%", {"prefill": "star:25%"})])
def test_a_dense_row_is_the_case_of_rows_from_before_patterns(tmp_path, prefill, kept):
    options, file = RunOptions(division="sp=2", threads=1, prefill=prefill), tmp_path / "rows.jsonl"
    row = RankDistance("ref:llama", "q8_0", None, prefill, options.layout, "fast", RanksMetrics("equal"))
    about = settings(options, None, 1)
    keep_row(str(file), row.to_json() | about, {"kind": "ranks"}, (*CASE_KEYS, *SETTINGS))
    (record,) = read_records(file)
    case = record.case.to_json()
    assert {key: value for key, value in case.items() if key in ("prefill", "micro_batches")} == kept
    assert case["sp"] == 2 and case["recipe"] == "q8_0"


def rows_of_rank_0(*commands, code: str | None = None) -> list[dict]:
    first, *others = run_ranks(*commands, code=code)
    assert [end.status for end in (first, *others)] == [0] * len(commands), first.err
    assert all(end.out == end.err == "" for end in others)
    return [json.loads(line) for line in first.out.splitlines()]


def test_divisions_of_one_run_match_separate_runs():
    command = ("compare", "rand:tiny", "--recipes", "q8_0", "--compute", "float32", "--threads", "1", "--json")
    rows = rows_of_rank_0(*[(*command, "--divisions", "tp,gather,pp,ep,sp")] * 2)
    verdicts = [WITHIN, EQUAL, EQUAL, REFUSED, WITHIN]
    assert [row["verdict"] for row in rows] == verdicts
    assert rows[3]["reason"] == "ep=2 divides experts, and rand:tiny has none; use tp or pp"
    alone = rows_of_rank_0(*[(*command, "--ranks", "sp=2")] * 2)
    assert alone == [row for row in rows if row["sp"] == 2]


# Rank 1 must read the layers that rank 0 has quantized.
ONE_QUANTIZES = """
import os, sys
from qbench.comparison import several_ranks
from qbench.cli.main import main
def refuse(*arguments, **options):
    raise AssertionError("this rank quantizes, too")
if os.environ["RANK"] != "0":
    several_ranks.open_quantized = refuse
sys.exit(main())
"""


@pytest.mark.exhaustive("quantizes with calibration")
def test_one_rank_quantizes_for_all():
    command = ("compare", "ref:llama", "--recipes", "gptq-w4g128", "--windows", "1", "--divisions", "gather", "--json")
    (row,) = rows_of_rank_0(*[command] * 2, code=ONE_QUANTIZES)
    assert row["verdict"] == EQUAL


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--divisions", "tp", "--ranks", "sp=2"), "--divisions names whole divisions; leave out --ranks sp=2"),
        (("--divisions", "tp"), "--divisions needs two ranks or more; start them with torchrun"),
    ],
)
def test_divisions_that_cannot_be_had(argv, message, capsys):
    assert main(["compare", "rand:tiny", *argv]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--divisions", "tp,px"), "division 'px' is unknown; known: tp, gather, pp, ep, sp"),
        (("--divisions", "tp", "--recipes", "q8_0,q9_9"), "q9_9"),
    ],
)
def test_unknown_names_end_the_run_before_any_work(argv, message):
    ends = run_ranks(*[("compare", "rand:tiny", *argv)] * 2)
    assert [end.status for end in ends] == [2, 2]
    (line,) = ends[0].err.splitlines()
    assert message in line and ends[0].out == ""
