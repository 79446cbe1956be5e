"""`qbench bench`: lists of cases, several models in turn, and when it stops."""

import json

import pytest

from qbench.cli.bench_lines import energy_line, outliers_of, readable
from qbench.cli.speed_options import effort
from qbench.measure.metrics import Metrics
from qbench.measure.speed_figures import Energy, Samples, Speed

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


def test_cases_that_do_not_fit_together_are_named(qbench, monkeypatch):
    monkeypatch.setattr("qbench.speed.lineup.free_memory_bytes", lambda: 1)
    for command, *more in (("bench",), ("bench", "--policy", "full"), ("race", "--policy", "full,window:4")):
        outcome = qbench(command, "rand:tiny", *QUICK, "-d", "0,5", *more, "--json")
        assert outcome.err.count("cases ran one after another, so that no ratio is given: the caches of all ") == 1
        assert all("not_interleaved" in row and "ratio" not in row for row in rows(outcome))


def test_depths_take_turns(qbench):
    first, second = rows(qbench("bench", "rand:tiny", *QUICK, "-d", "0,40", "--json"))
    assert first["ratio"] is None and second["samples"]["interleaved_with"] == ["policy full at depth 0"]
    assert "of 2 cases at once" in readable(Metrics.from_json(second))["peak_rss"]
    assert "of policy full at depth 0" in readable(Metrics.from_json(second))["tg ratio"]


@pytest.mark.parametrize(
    "given, repetitions, precision",
    [
        pytest.param({}, 6, 0.02, id="by default until it is precise"),
        pytest.param({"repetitions": 3}, 3, None, id="so many"),
        pytest.param({"precision": 0.1}, 6, 0.1, id="so precise"),
        pytest.param({"repetitions": 9, "precision": 0.1}, 9, 0.1, id="at least so many"),
    ],
)
def test_effort_follows_repetitions_and_precision(given, repetitions, precision):
    budget_s = None if precision is None else 30.0
    expected = {"repetitions": repetitions, "precision": precision, "budget_s": budget_s}
    assert effort(**{"repetitions": None, "precision": None, "budget": 30.0} | given) == expected


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
