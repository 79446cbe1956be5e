"""Kept rows of `compare --tp`: the case that they are."""

import pytest

from qbench.cli.rank_compare import CASE_KEYS, SETTINGS, settings
from qbench.compare.several_ranks import RankDistance
from qbench.measure.records.kept_ranks import RanksMetrics
from qbench.measure.records.kept_row import keep_row
from qbench.measure.records.record import read_records
from qbench.run_options import RunOptions


@pytest.mark.parametrize(("prefill", "kept"), [("dense", {}), ("star:25%", {"prefill": "star:25%"})])
def test_a_dense_row_is_the_case_of_rows_from_before_patterns(tmp_path, prefill, kept):
    options, file = RunOptions(sp=2, threads=1, prefill=prefill), tmp_path / "rows.jsonl"
    row = RankDistance("ref:llama", "q8_0", None, prefill, options.layout, "fast", RanksMetrics("equal"))
    about = settings(options, None, 1)
    keep_row(str(file), row.to_json() | about, {"kind": "ranks"}, (*CASE_KEYS, *SETTINGS))
    (record,) = read_records(file)
    case = record.case.to_json()
    assert {key: value for key, value in case.items() if key in ("prefill", "micro_batches")} == kept
    assert case["sp"] == 2 and case["recipe"] == "q8_0"
