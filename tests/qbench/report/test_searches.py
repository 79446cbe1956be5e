"""The table of kept searches."""

from dataclasses import replace

from support.sample_records import make_record, write_records

from qbench.measure.records.kept_searches import SearchCase, SearchCost, SearchedFile, SearchMetrics
from qbench.report import render_report
from qbench.statistics.estimate import Estimate

CASE = SearchCase("search", "ref:llama", target="4bpw", threads=2)
MIX = SearchedFile("best", 1000, 0.0004, Estimate(0.0005, 1e-5, 0.0004, 0.0006))
LLAMA = SearchedFile("imatrix-q4_k", 990, 0.002, Estimate(0.004), Estimate(0.125, 0.01, 0.1, 0.15, 0.001))
COST = SearchCost(30.0, {"survey": 10.0, "best": 8.0, "check": 6.0}, 8.0)


def rows_of(tmp_path, metrics, case=CASE, *others):
    records = [
        make_record("q8_0") | {"key": str(number), "case": case.to_json(), "metrics": each.to_json()}
        for number, each in enumerate((metrics, *others))
    ]
    text = render_report(write_records(tmp_path / "records.jsonl", records), "md")
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_a_row_per_candidate_with_the_cost_of_the_search(tmp_path):
    found = SearchMetrics("best", "lower KLD", 2000, candidates=(MIX, LLAMA), cost=COST)
    assert rows_of(tmp_path, found) == [
        ["ref:llama", "4bpw", "mix *", "4.000", "5.00e-04 [4.00e-04, 6.00e-04]", "0.80", "", "3.0"],
        ["ref:llama", "4bpw", "imatrix-q4_k", "3.960", "4.00e-03", "0.50", "0.12 [0.10, 0.15]", ""],
    ]


def test_a_search_without_rivals_or_cost(tmp_path):
    found = SearchMetrics("best", "no fixed recipe is as small", 2000, candidates=(MIX,))
    assert [row[2:3] + row[5:] for row in rows_of(tmp_path, found)] == [["mix *", "0.80", "", ""]]


def test_an_ablation_names_its_mix_without_error_feedback(tmp_path):
    plain = SearchedFile("best-plain", 1000, 0.001, Estimate(0.002), Estimate(0.25))
    found = SearchMetrics("best", "lower KLD", 2000, candidates=(MIX, plain, LLAMA))
    assert [(row[2], row[7]) for row in rows_of(tmp_path, found)] == [
        ("mix *", ""),
        ("mix-plain", ""),
        ("imatrix-q4_k", ""),
    ]


def test_a_kv_cache_that_counts(tmp_path):
    mix, llama = (replace(each, kv_format="kv-int8", kv_bytes=99) for each in (MIX, LLAMA))
    found = SearchMetrics("best", "lower KLD", 2000, candidates=(mix, replace(llama, name="imatrix-q4_k+kv-int8")))
    rows = rows_of(tmp_path, found, replace(CASE, context=8192, batch=2, kv="auto"))
    assert [row[1:3] for row in rows] == [
        ["4bpw with KV of 2 x 8192", "mix+kv-int8 *"],
        ["4bpw with KV of 2 x 8192", "imatrix-q4_k+kv-int8"],
    ]


def test_searches_of_a_model_are_by_size(tmp_path):
    large, small = (SearchMetrics("best", "", 2000, candidates=(replace(MIX, size_bytes=size),)) for size in (500, 250))
    assert [row[3] for row in rows_of(tmp_path, large, CASE, small)] == ["1.000", "2.000"]
