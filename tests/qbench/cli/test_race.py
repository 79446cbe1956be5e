"""`qbench race`: caches, models and processes in turn, and combinations that are refused."""

import json

import numpy as np
import pytest
from support.close import assert_close

from qbench.cli.bench_lines import decided_by, ratio_lines, readable
from qbench.measure.metrics import Metrics
from qbench.statistics.estimate import Estimate
from qbench.statistics.verdict import needed_samples

QUICK = ("-p", "8", "-n", "2", "-r", "1", "--threads", "1")


def rows(outcome) -> list[dict]:
    assert outcome.status == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_layouts_and_policies_are_a_row_per_pair(qbench):
    argv = ("race", "rand:tiny", *QUICK, "-d", "0,40", "--cache", "none,dynamic")
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


def test_a_policy_may_have_its_own_depth(qbench):
    policies = "full@4,h2o:budget=16,recent=0.25@40,tova:budget=8"
    outcome = qbench("race", "rand:tiny", *QUICK, "-r", "2", "--policy", policies, "-d", "9", "--json")
    found = rows(outcome)
    expected = [("full", 4), ("h2o:budget=16,recent=0.25", 40), ("tova:budget=8", 9)]
    assert [(row["policy"], row["depth"]) for row in found] == expected
    assert found[0]["ratio"] is None and not outcome.err
    for row in found[1:]:
        assert row["ratio_to"] == "policy full at depth 4"
        assert row["ratio"]["tg"]["low"] <= row["ratio"]["tg"]["value"] <= row["ratio"]["tg"]["high"]
    qbench("race", "rand:tiny", "--policy", "full@deep").fails_with("--policy", "'deep' is not a valid integer")
    qbench("race", "rand:tiny", "--policy", "fool@4").fails_with("--policy", "unknown policy 'fool'")


@pytest.mark.parametrize(
    "argv, message",
    [
        (("rand:tiny", "--cache", "most,none"), "unknown cache 'most'; known: dynamic, static, paged, none"),
        (("rand:tiny", "rand:tiny", "--cache", "none"), "--cache and --policy: for a race of caches or policies"),
        (("rand:tiny", "--cache", "paged,static", "--policy", "window:8"), "cache paged goes with policy full"),
        (("rand:tiny", "--cache", "window:8"), "cache 'window:8' is a policy now"),
        (("rand:tiny", "--policy", "full,window"), "all layers of this model attend to all tokens"),
    ],
    ids=["unknown", "several models", "no such pair", "old name", "no window"],
)
def test_bad_caches(qbench, argv, message):
    qbench("race", *argv, *QUICK).fails_with(message)


@pytest.mark.parametrize(
    "argv, message",
    [
        ((), "a race needs a second MODEL, --recipe, --cache or --policy, or --launches or --vs; `qbench bench MODEL`"),
        (("--policy", "full"), "a race needs a second MODEL"),
        (("--launches", "2", "--cache", "static"), "--cache and --policy: for a race of caches or policies"),
        (("rand:tiny", "--device", "cuda"), "--device: for a race of caches or policies; this"),
        (("rand:tiny", "--memory", "1GiB"), "--memory: for a race of caches or policies"),
        (("rand:tiny", "--keep", "kept.jsonl"), "--keep: for a race of --vs; this is one of several models"),
        (("--cache", "none,dynamic", "--cpu-time"), "--cpu-time: for a race of several models or --vs"),
        (("--launches", "2", "--cpu-time"), "--cpu-time: for a race of several models or --vs"),
        (("--vs", "llama.cpp", "--launches", "2"), "--launches: for a race of several models or launches of one model"),
        (("--vs", "llama.cpp", "--recipe", "q8_0"), "--vs takes a file as it is"),
        (("rand:tiny", "--tp", "2"), "race has no --tp; use `qbench bench MODEL --ranks tp=N`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options_that_do_not_go_with_a_race(qbench, argv, message):
    qbench("race", "rand:tiny", *argv).fails_with(message)


@pytest.mark.parametrize(
    "argv, command",
    [
        (("rand:tiny", "rand:small"), "qbench race rand:tiny rand:small"),
        (("rand:tiny", "--recipe", "bf16", "--recipe", "q8_0"), "qbench race MODEL --recipe bf16 --recipe q8_0"),
        (("rand:tiny", "--policy", "full@4,tova:budget=8"), "qbench race MODEL --policy full@4,tova:budget=8"),
        (("rand:tiny", "--cache", "none,dynamic"), "qbench race MODEL --cache none,dynamic"),
        (("rand:tiny", "--launches", "3"), "qbench race MODEL --launches N"),
        (("m.gguf", "--vs", "llama.cpp"), "qbench race MODEL --vs llama.cpp"),
        (("rand:tiny", "--breakdown"), "qbench breakdown MODEL"),
        (("a", "b", "--cpu-time"), "qbench race A B --cpu-time"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_old_use_of_bench_names_the_new_command(qbench, argv, command):
    qbench("bench", *argv).fails_with("bench", f"`{command}`")


@pytest.mark.parametrize(
    "argv", [("bench", "rand:tiny"), ("race", "rand:tiny", "rand:tiny")], ids=["alone", "side by side"]
)
def test_a_batch_beyond_memory_is_refused_before_anything_is_made(qbench, argv):
    outcome = qbench(*argv, *QUICK, "-b", "99999999")
    assert outcome.status == 2 and not outcome.out
    assert "batch 99999999 of 8 tokens needs" in outcome.err and "the largest batch that fits is" in outcome.err


def test_several_models_take_turns(qbench):
    argv = ("race", "rand:tiny", "rand:tiny", "--recipe", "bf16", "--recipe", "q8_0", *QUICK, "--cpu-time")
    first, second = rows(qbench(*argv, "--json"))
    assert first["clock"] == second["clock"] == "cpu"
    assert (first["recipe"], second["recipe"]) == ("bf16", "q8_0") and first["ratio"] is None
    assert second["ratio"]["pp"]["value"] > 0 and second["samples"]["interleaved_with"] == ["rand:tiny as bf16"]
    assert second["peak_rss_bytes"] > 0 and second["samples"]["stopped"] == "repetitions"
    assert "of the first" in readable(Metrics.from_json(second))["pp ratio"]
    assert "pp ratio" not in readable(Metrics.from_json(first))


def test_a_ratio_around_1_names_the_number_of_rounds_that_would_decide_it():
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
    first, second = rows(qbench("race", *argv))
    for row in (first, second):
        of_launches = [1 / np.median(launch["tg"][0]) for launch in row["launches"]]
        assert_close([row["tg_tok_s"]], [row["tg"] * np.exp(np.mean(np.log(of_launches)))], rtol=1e-12)
        assert_close([row["tg_tok_s"] * row["tpot_ms"]], [1e3], rtol=1e-12)
        low, high = row["interval"]["tg_tok_s"]
        assert low < row["tg_tok_s"] < high
    ratio = second["ratio"]["tg"]
    assert first["ratio"] is None and ratio["low"] < ratio["value"] < ratio["high"] and "p_value" in ratio
    assert readable(Metrics.from_json(first))["launches"].startswith("3 processes: pp ")


def test_a_ratio_of_few_rounds_warns_of_its_interval():
    ratio = {"value": 1.2, "low": 1.1, "high": 1.3, "p_value": 0.01}

    def lines(rounds: int, **of_ratio) -> dict:
        samples = {"pp_tok_s": [9.0] * rounds, "tg_tok_s": []}
        return ratio_lines(Metrics.from_json({"ratio": {"pp": ratio | of_ratio}, "samples": samples}))

    assert "hardly show in 5 rounds" in lines(5)["few rounds"]
    assert "few rounds" not in lines(15) and "few rounds" not in lines(1, low=None)
