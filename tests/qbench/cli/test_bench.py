"""`qbench bench`: lists of cases, several models in turn, and when it stops."""

import json

import numpy as np
import pytest
from support.close import assert_close

from qbench.cli.bench import how_long
from qbench.cli.bench_lines import decided_by, energy_line, outliers_of, ratio_lines, readable
from qbench.measure.metrics import Metrics
from qbench.measure.speed_figures import Energy, Samples, Speed
from qbench.statistics.estimate import Estimate
from qbench.statistics.verdict import needed_samples

QUICK = ("-p", "8", "-n", "2", "-r", "1", "--threads", "1")


def rows(outcome) -> list[dict]:
    assert outcome.status == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_batches_depths_and_threads_are_a_row_each(qbench):
    found = rows(qbench("bench", "rand:tiny", *QUICK[:-1], "1,2", "-b", "1,3", "-d", "0,5", "--json"))
    order = [(threads, batch, depth) for threads in (1, 2) for batch in (1, 3) for depth in (0, 5)]
    assert [(row["threads"], row["batch"], row["depth"]) for row in found] == order
    alone, three = found[0], found[2]
    assert three["predicted_bytes"]["kv"] == 3 * alone["predicted_bytes"]["kv"]
    assert three["roofline"]["tg_bytes"]["linears"] == alone["roofline"]["tg_bytes"]["linears"]
    for row in found:
        assert abs(row["tg_tok_s"] * row["tpot_ms"] / 1e3 - row["batch"]) < 1e-9 * row["batch"]
        assert abs(row["pp_tok_s"] * row["ttft_ms"] / 1e3 - 8 * row["batch"]) < 1e-9 * 8 * row["batch"]
        assert row["energy"]["joules"] is not None or row["energy"]["reason"]
        assert row["roofline"]["bandwidths_bytes_per_s"] == [], "a cache keeps it"
        assert "pp8" in " ".join(readable(Metrics.from_json(row)))


def test_layouts_and_policies_are_a_row_per_pair(qbench):
    argv = ("bench", "rand:tiny", *QUICK, "-d", "0,40", "--cache", "none,dynamic")
    argv += ("--policy", "full,window:16")
    found = rows(qbench(*argv, "--json"))
    pairs = (("none", "full"), ("dynamic", "full"), ("dynamic", "window:16"))
    expected = [(*pair, depth) for pair in pairs for depth in (0, 40)]
    assert [(row["cache"], row["policy"], row["depth"]) for row in found] == expected
    none, dynamic, window = (found[i]["roofline"]["tg_bytes"]["kv_read"] for i in (1, 3, 5))
    assert none == 0 and abs(window / dynamic - 16 / 40.5) < 1e-9
    assert found[1]["kv_bytes_held"] == 0 < found[3]["kv_bytes_held"] == found[3]["predicted_bytes"]["kv"]
    table = qbench(*argv).out.splitlines()
    assert [tuple(line.split()[:2]) for line in table[:-1]] == [("cache", "policy"), *(one[:2] for one in expected)]
    assert "base" in table[1] and "tokens per second over those of cache none at depth 0;" in table[-1]


def test_a_policy_may_have_a_depth_of_its_own(qbench):
    policies = "full@4,h2o:budget=16,recent=0.25@40,tova:budget=8"
    outcome = qbench("bench", "rand:tiny", *QUICK, "-r", "2", "--policy", policies, "-d", "9", "--json")
    found = rows(outcome)
    expected = [("full", 4), ("h2o:budget=16,recent=0.25", 40), ("tova:budget=8", 9)]
    assert [(row["policy"], row["depth"]) for row in found] == expected
    assert found[0]["ratio"] is None and not outcome.err
    for row in found[1:]:
        assert row["ratio_to"] == "policy full at depth 4"
        assert row["ratio"]["tg"]["low"] <= row["ratio"]["tg"]["value"] <= row["ratio"]["tg"]["high"]
    qbench("bench", "rand:tiny", "--policy", "full@deep").fails_with("--policy", "'deep' is not a valid integer")
    qbench("bench", "rand:tiny", "--policy", "fool@4").fails_with("--policy", "unknown policy 'fool'")


def test_cases_that_do_not_fit_together_are_named(qbench, monkeypatch):
    monkeypatch.setattr("qbench.speed.memory_together.free_memory_bytes", lambda: 1)
    for more in ((), ("--policy", "full")):
        outcome = qbench("bench", "rand:tiny", *QUICK, "-d", "0,5", *more, "--json")
        assert (
            outcome.err.count("cases ran one after another, so that no ratio is given: the caches of all 2 cases") == 1
        )
        assert all("not_interleaved" in row and "ratio" not in row for row in rows(outcome))


@pytest.mark.parametrize(
    "argv, message",
    [
        (("rand:tiny", "--cache", "most"), "unknown cache 'most'; known: dynamic, static, paged, none"),
        (("rand:tiny", "rand:tiny", "--cache", "none"), "--cache and --policy are for one model"),
        (("rand:tiny", "--cache", "paged", "--policy", "window:8"), "cache paged goes with policy full"),
        (("rand:tiny", "--cache", "window:8"), "cache 'window:8' is a policy now"),
        (("rand:tiny", "--policy", "window"), "all layers of this model attend to all tokens"),
    ],
    ids=["unknown", "several models", "no such pair", "old name", "no window"],
)
def test_bad_caches(qbench, argv, message):
    outcome = qbench("bench", *argv, *QUICK)
    assert outcome.status == 2 and message in outcome.err and not outcome.out


@pytest.mark.parametrize("models", [("rand:tiny",), ("rand:tiny", "rand:tiny")], ids=["alone", "side by side"])
def test_a_batch_beyond_memory_is_refused_before_anything_is_made(qbench, models):
    outcome = qbench("bench", *models, *QUICK, "-b", "99999999")
    assert outcome.status == 2 and not outcome.out
    assert "batch 99999999 of 8 tokens needs" in outcome.err and "the largest batch that fits is" in outcome.err


def test_several_models_take_turns(qbench):
    argv = ("bench", "rand:tiny", "rand:tiny", "--recipe", "bf16", "--recipe", "q8_0", *QUICK, "--cpu-time")
    first, second = rows(qbench(*argv, "--json"))
    assert first["clock"] == second["clock"] == "cpu"
    assert (first["recipe"], second["recipe"]) == ("bf16", "q8_0") and first["ratio"] is None
    assert second["ratio"]["pp"]["value"] > 0 and second["samples"]["interleaved_with"] == ["rand:tiny as bf16"]
    assert second["peak_rss_bytes"] > 0 and second["samples"]["stopped"] == "repetitions"
    assert "of the first" in readable(Metrics.from_json(second))["pp ratio"]
    assert "pp ratio" not in readable(Metrics.from_json(first))


def test_depths_take_turns(qbench):
    first, second = rows(qbench("bench", "rand:tiny", *QUICK, "-d", "0,40", "--json"))
    assert first["ratio"] is None and second["samples"]["interleaved_with"] == ["policy full at depth 0"]
    assert "of 2 cases at once" in readable(Metrics.from_json(second))["peak_rss"]
    assert "of policy full at depth 0" in readable(Metrics.from_json(second))["tg ratio"]


def test_a_ratio_around_1_says_how_many_rounds_would_decide_it():
    ratio = {"value": 1.01, "error": 0.01, "low": 0.98, "high": 1.04, "p_value": 0.5}
    beyond = ratio | {"low": 1.001, "p_value": 0.04}
    assert decided_by(beyond, 20, "rounds") == "" == decided_by(ratio | {"low": None}, 20, "rounds")
    assert decided_by(beyond | {"p_value": 0.06}, 20, "rounds") == (
        "; undecided: a slow drift of one model hides in fewer than 60 rounds"
    )
    rounds = needed_samples(20, Estimate.from_json(ratio), neutral=1.0)
    assert rounds > 20 and decided_by(ratio, 20, "rounds").startswith(f"; undecided: {rounds} rounds would decide")


@pytest.mark.exhaustive("seven processes; launches of the gate are in every run")
def test_several_launches_give_one_row_with_the_spread_between_them(qbench):
    argv = ("rand:tiny", "--recipe", "bf16", "--recipe", "q8_0", *QUICK, "--launches", "3", "--pause", "0", "--json")
    first, second = rows(qbench("bench", *argv))
    for row in (first, second):
        of_launches = [1 / np.median(launch["tg"][0]) for launch in row["launches"]]
        assert_close([row["tg_tok_s"]], [row["tg"] * np.exp(np.mean(np.log(of_launches)))], rtol=1e-12)
        assert_close([row["tg_tok_s"] * row["tpot_ms"]], [1e3], rtol=1e-12)
        low, high = row["interval"]["tg_tok_s"]
        assert low < row["tg_tok_s"] < high
    ratio = second["ratio"]["tg"]
    assert first["ratio"] is None and ratio["low"] < ratio["value"] < ratio["high"] and "p_value" in ratio
    assert readable(Metrics.from_json(first))["launches"].startswith("3 processes: pp ")


def test_a_ratio_of_few_rounds_says_what_its_interval_is_worth():
    ratio = {"value": 1.2, "low": 1.1, "high": 1.3, "p_value": 0.01}

    def lines(rounds: int, **of_ratio) -> dict:
        samples = {"pp_tok_s": [9.0] * rounds, "tg_tok_s": []}
        return ratio_lines(Metrics.from_json({"ratio": {"pp": ratio | of_ratio}, "samples": samples}))

    assert "hardly show in 5 rounds" in lines(5)["few rounds"]
    assert "few rounds" not in lines(15) and "few rounds" not in lines(1, low=None)


@pytest.mark.parametrize(
    "given, repetitions, precision",
    [
        pytest.param({}, 6, 0.02, id="by default until it is precise"),
        pytest.param({"repetitions": 3}, 3, None, id="so many"),
        pytest.param({"precision": 0.1}, 6, 0.1, id="so precise"),
        pytest.param({"repetitions": 9, "precision": 0.1}, 9, 0.1, id="at least so many"),
    ],
)
def test_how_long(given, repetitions, precision):
    budget_s = None if precision is None else 30.0
    expected = {"repetitions": repetitions, "precision": precision, "budget_s": budget_s}
    assert how_long(**{"repetitions": None, "precision": None, "budget": 30.0} | given) == expected


def test_the_budget_ends_it(qbench):
    argv = ("bench", "rand:tiny", "-p", "8", "-n", "2", "--precision", "0.0001%", "--budget", "0", "--threads", "1")
    (row,) = rows(qbench(*argv, "--json"))
    assert row["samples"]["stopped"] == "budget" and len(row["samples"]["pp_tok_s"]) >= 5


def test_outliers_are_shown():
    def outliers(*places: int) -> list[str]:
        return outliers_of(Samples(pp_tok_s=[100.0, 9.0, 101.0, 950.0], outliers={"pp_tok_s": list(places)}), "pp")

    assert outliers(1, 3) == ["2 of pp, 9.0 to 950.0 tok/s"]
    assert outliers(1) == ["1 of pp, 9.0 tok/s"]
    assert outliers() == []


def test_energy_in_words():
    work = Speed(batch=2, pp=100, tg=10)
    assert energy_line(work, Energy(reason="RAPL is absent")) == "n/a: RAPL is absent"
    by = {"pp": {"package-0": 30.0, "dram-0": 10.0}, "tg": {"package-0": 3.0, "dram-0": 1.0}}
    energy = Energy(joules=by, idle_watts={"package-0": 5.0, "dram-0": 1.0})
    assert energy_line(work, energy) == "pp 0.2 J, tg 0.2 J a token beyond idle (package-0, dram-0)"
