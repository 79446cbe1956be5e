"""The page's comparison of two rows, against qbench.statistics."""

import json
from math import sqrt

import numpy as np
import pytest
import yaml
from support.measured_records import blocks_of, measured_record
from support.row_comparison import compare_rows
from support.sample_records import SWEEP

from qbench.measure.quality_figures import Blocks
from qbench.report.table import pareto_front
from qbench.run.axes import NAMES
from qbench.statistics.estimate import Estimate
from qbench.statistics.intervals import RESAMPLES, block_mean
from qbench.statistics.launches import launch_ratio, launched_ratio, launched_speeds
from qbench.statistics.paired import kld_difference, perplexity_ratio, same_top_difference
from qbench.statistics.verdict import accuracy_difference, holm
from qbench.sweeps.suite.cases import make_cases, select_points
from qbench.sweeps.suite.load_suite import build_suite

# An end of an interval is a quantile at 2.5 %, in standard errors from the middle, of RESAMPLES draws. Its own standard
# error is sqrt(p (1 - p) / R) over the density there, at least 0.03 for 24 blocks (normal: 0.058; Student's law with
# fewer degrees is flatter). Two independent bootstraps differ by sqrt(2) of that; four times it is never exceeded.
END_ERROR = 4 * sqrt(2) * sqrt(0.025 * 0.975 / RESAMPLES) / 0.03

# Student's law is integrated by Simpson's rule, whose error is of the order of a step (1 / 400) to the power 4, 4e-11,
# times a fourth derivative of about 1e3; a quantile far out takes it over a density of about 1e-2.
INTEGRAL_ERROR = 1e-5


@pytest.fixture(scope="module")
def page(opened):
    return opened([measured_record("q8_0")], "#/nowhere").page


def assert_same_estimate(found: dict, expected: Estimate, end: float = INTEGRAL_ERROR) -> None:
    """end   largest distance of the ends, in standard errors"""
    assert found["value"] == pytest.approx(expected.value, rel=1e-9)
    if expected.low is None:
        assert found["low"] is None and found["p"] is None
        return
    assert found["low"] == pytest.approx(expected.low, abs=end * expected.error + 1e-12)
    assert found["high"] == pytest.approx(expected.high, abs=end * expected.error + 1e-12)
    # A p value of the bootstrap is a share of RESAMPLES, twice: four standard errors of each.
    shares = 4 * 2 * sqrt(2 * max(expected.p_value, 2 / RESAMPLES) / RESAMPLES)
    slack = INTEGRAL_ERROR if end == INTEGRAL_ERROR else shares
    assert found["p"] == pytest.approx(expected.p_value, abs=slack)


@pytest.mark.parametrize(("a", "b"), [("bf16", "q4_0"), ("q8_0", "rtn-w8"), ("q6_k", "q5_k_m"), ("q8_0", "q8_0")])
def test_paired_blocks(page, a, b):
    blocks = [blocks_of(a), blocks_of(b)]
    for what, paired in (
        ("nll", perplexity_ratio),
        ("kld", kld_difference),
        ("same_top", same_top_difference),
    ):
        change = "asRatio(pairedBlocks(a, b, what))" if what == "nll" else "pairedBlocks(a, b, what)"
        found = page.evaluate(f"([a, b, what]) => {change}", [*blocks, what])
        assert_same_estimate(found, paired(*map(Blocks.from_json, blocks)), END_ERROR)


def test_blocks_of_unlike_lengths_and_blocks_that_do_not_pair(page):
    rng = np.random.default_rng(5)
    tokens = rng.integers(20, 400, 40).tolist()
    sides = [
        {"unit": "document", "tokens": tokens, "kld": (rng.gamma(1, 0.01, 40) * tokens).tolist()} for _ in range(2)
    ]
    found = page.evaluate("([a, b]) => pairedBlocks(a, b, 'kld')", sides)
    assert_same_estimate(found, kld_difference(*map(Blocks.from_json, sides)), END_ERROR)
    assert page.evaluate("([a, b]) => pairedBlocks(a, b, 'nll')", sides) is None
    sides[1]["tokens"] = tokens[::-1]
    assert page.evaluate("([a, b]) => pairedBlocks(a, b, 'kld')", sides) is None
    alone = {"unit": "window", "tokens": [100], "kld": [1.5]}
    expected = kld_difference(*map(Blocks.from_json, (alone, alone)))
    assert_same_estimate(page.evaluate("a => pairedBlocks(a, a, 'kld')", alone), expected)


@pytest.mark.parametrize(
    ("a", "b"),
    [("0110", "1110"), ("1" * 30, "0" * 12 + "1" * 18), ("01" * 700, "0111" * 350), ("0", "0"), ("10", "01")],
)
def test_accuracy_on_the_page_matches_python(page, a, b):
    found, expected = page.evaluate("([a, b]) => accuracyChange(a, b)", [a, b]), accuracy_difference(a, b)
    assert_same_estimate(found, expected["difference"])
    assert (found["lost"], found["gained"]) == (expected["right_to_wrong"], expected["wrong_to_right"])


@pytest.mark.parametrize("counts", [(2, 2), (3, 5), (8, 6)], ids=str)
def test_speeds_of_several_launches(page, counts):
    rng = np.random.default_rng(counts)
    launches = [[rng.lognormal(-2, 0.05, 7).tolist() for _ in range(count)] for count in counts]
    found = page.evaluate("([a, b]) => launchRatio(a, b)", launches)
    assert_same_estimate(found, launch_ratio(*launches))


def test_speeds_of_pooled_launches(page):
    a, b = launched_speeds([[100.0, 103.0, 99.0], [120.0, 118.0]])
    sides = [
        {"speed": one.estimate.value, "error": one.error, "freedom": one.freedom, "count": one.num_launches}
        for one in (a, b)
    ]
    assert_same_estimate(page.evaluate("([a, b]) => launchedRatio(a, b)", sides), launched_ratio(a, b))


def test_speeds_of_one_process_have_a_verdict_only_by_launches(page):
    side = {"tg_tok_s": 100.0, "samples": {"tg_tok_s": [99.0, 100.0, 101.0]}}
    fast = {"tg_tok_s": 200.0, "samples": {"tg_tok_s": [199.0, 200.0, 201.0]}}
    of_launches = [
        one | {"launches": [{"seconds": {"tg": [[1 / speed, 1.01 / speed]]}} for speed in one["samples"]["tg_tok_s"]]}
        for one in (side, fast)
    ]
    launched = [{"speed": speed, "error": 0.01, "freedom": 4, "count": 2} for speed in (100.0, 200.0)]
    verdict = "([a, b, launched]) => judge([speedCell('tg_tok_s', a, b, launched)])[0].verdict"
    assert page.evaluate(verdict, [side, fast, [None, None]]) is None
    assert page.evaluate(verdict, [side, fast, [launched[0], None]]) is None
    assert page.evaluate(verdict, [side, fast, launched]) == "better"
    assert page.evaluate(verdict, [*of_launches, [None, None]]) == "better"


def test_tasks_of_every_kind_match_python(page):
    rng = np.random.default_rng(3)
    words, likelihoods = rng.integers(5, 60, 30).tolist(), rng.normal(-40.0, 8.0, 30)
    about = {"metric": "m", "higher_is_better": False, "protocol_hash": "h", "protocol": {}}

    def side(loss: float) -> dict:
        values = (likelihoods - loss * np.array(words) * rng.uniform(0.9, 1.1, 30)).tolist()
        weighted = about | {"values": values, "weights": words}
        plain = about | {"values": [value / 10 for value in values]}
        mean, rate = np.mean(plain["values"]), np.sum(values) / np.sum(words)
        correct = "1" * 30 if not loss else "10" * 15
        skill = about | {"metric": "acc", "correct": correct, "value": correct.count("1") / 30}
        return {
            "words": weighted | {"value": np.exp(-rate)},
            "bits": weighted | {"value": -rate / np.log(2)},
            "mean": plain | {"value": mean},
            "items": plain | {"value": np.exp(-mean)},
            "median": plain | {"value": np.median(plain["values"])},
            "broken": plain | {"values": [None, 1.0], "value": None},
            "skill": skill,
            "group": skill | {"protocol": {"tasks": {"skill": "h"}}},
        }

    a, b = (json.loads(json.dumps(measured_record("q8_0", tasks=side(loss)))) for loss in (0.0, 0.02))
    found = page.evaluate(
        "([a, b]) => compareRecords(a, b).cells.map((cell) => [cell.column.key, cell.verdict, cell.change])", [a, b]
    )
    told = {key: (verdict, change) for key, verdict, change in found}
    cells = {cell.metric: cell for cell in compare_rows(a, b).cells}
    assert cells.keys() & {"median", "broken"} == told.keys() & {"median", "broken"} == set()
    for name in ("words", "bits", "mean", "items", "skill", "group"):
        assert told[name][0] == cells[name].verdict
        assert told[name][1]["value"] == pytest.approx(cells[name].estimate.value, rel=1e-9)
    assert {name: told[name][0] for name in ("words", "mean", "items", "group")} == {
        "words": "worse",
        "mean": "better",
        "items": "worse",
        "group": None,
    }


@pytest.mark.parametrize("size", [2, 7, 20])
def test_equal_samples_are_no_certainty(page, size):
    for value in (0.1, 3.0, 0.0):
        sums, tokens = (value * np.arange(1, size + 1)).tolist(), list(range(1, size + 1))
        found = page.evaluate("([sums, tokens]) => blockMean(sums, tokens)", [sums, tokens])
        assert_same_estimate(found, block_mean(sums, tokens))
        launches = [[[1000 * (1 + value)]] * size, [[1000.0]] * size]
        found = page.evaluate("([a, b]) => launchRatio(a, b)", launches)
        assert_same_estimate(found, launch_ratio(*launches))
        assert (found["low"] is None) == (value != 0)


def test_holm_on_the_page_matches_python(page):
    ps = [0.01, 0.04, 0.03, 1.0, 0.0005]
    assert page.evaluate("ps => holm(ps)", ps) == pytest.approx(holm(ps))
    assert page.evaluate("ps => holm(ps)", [None, 0.02, None]) == [None, 0.02, None]


def test_fronts_on_the_page_match_python(page):
    rng = np.random.default_rng(11)
    for costs in (rng.random((60, 2)), rng.integers(0, 6, (60, 2)).astype(float), np.zeros((4, 2)), np.zeros((0, 2))):
        costs[costs[:, 0:1].repeat(2, 1) == 5] = np.nan
        given = [[None if value != value else value for value in pair] for pair in costs.tolist()]
        front = page.evaluate("pairs => paretoFront(pairs.map((pair) => pair.map((cost) => cost ?? NaN)))", given)
        assert sorted(front) == np.flatnonzero(pareto_front(costs)).tolist()


@pytest.mark.parametrize("recipe", SWEEP)
def test_whole_comparisons_match_python(page, recipe):
    """The verdict of every metric, through all of the page's own code."""
    a, b = (json.loads(json.dumps(measured_record(name))) for name in ("q5_k_m", recipe))
    found = page.evaluate(
        "([a, b]) => compareRecords(a, b).cells.map((cell) => [cell.column.key, cell.verdict])", [a, b]
    )
    expected = {cell.metric: cell.verdict for cell in compare_rows(a, b).cells}
    names = {"kld_mean": "kld"}
    found = {names.get(key, key): told for key, told in found if names.get(key, key) in expected}
    assert found.keys() == expected.keys()
    assert {key: told for key, told in found.items() if key != "size_bytes"} == {
        key: told for key, told in expected.items() if key != "size_bytes"
    }


SLOW = pytest.mark.exhaustive("two seconds for each; the suite with all parts is in every run")
SUITE = """
name: again
models: [ref:llama]
recipes: [q4_k_m]
kv_formats: [kv-fp8]
threads: [2]
batches: [2]
contexts: [64]
isa: [scalar]
policies: ["h2o:budget=64"]
prefill_chunks: [32]
question: [hidden]
eval: {max_windows: 4, protocols: [gptq-2048, llama.cpp-512]}
tasks: {names: [ref_recall], limit: 4}
bench: {pp: 32, tg: 4, repetitions: 2}
calibration: {samples: 8}
"""


@pytest.mark.parametrize(
    "left_out",
    [
        (),
        pytest.param(("policies", "question", "contexts"), marks=SLOW),
        pytest.param(("kv_formats", "isa", "batches", "contexts", "calibration"), marks=SLOW),
        pytest.param(("bench", "batches", "contexts"), marks=SLOW),
    ],
)
def test_the_suite_of_one_case_gives_that_very_case(page, tmp_path, left_out):
    given = {key: value for key, value in yaml.safe_load(SUITE).items() if key not in left_out}
    suite = build_suite(given, "test", tmp_path)
    (case,) = make_cases(suite, select_points(suite))
    text = page.evaluate("measured => suiteText({ case: measured })", case.to_json())
    again = build_suite(yaml.safe_load(text), "again", tmp_path)
    assert make_cases(again, select_points(again)) == [case]


def test_the_suite_of_one_case_has_every_axis_that_a_case_has(page):
    assert set(page.evaluate("Object.keys(AXES)")) == set(NAMES) - {
        "context",
        "seed",
        "text",
    }  # bench, calibration and eval name them
