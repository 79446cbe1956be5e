"""`bench_lineup`: cases of one model take turns over the same weights, and each has its ratio to the first."""

from dataclasses import replace

import numpy as np
import pytest
from support.close import assert_close

from qbench.measure.metrics import Metrics
from qbench.run.options import RunOptions
from qbench.run.work import SpeedWork
from qbench.runtime.offload.budget import rss_bytes
from qbench.speed import lineup
from qbench.speed.bench import bench_cases
from qbench.speed.entry import Entry
from qbench.speed.lineup import bench_lineup
from quant.errors import InputError

CASE = SpeedWork(pp=8, tg=3, depth=5, repetitions=3)
ENTRIES = [
    Entry("dynamic", "full", CASE),
    Entry("dynamic", "h2o:budget=16", replace(CASE, depth=40)),
    Entry("none", "full", replace(CASE, batch=2)),
]


def rows_of(*entries: Entry, **how) -> list[Metrics]:
    return list(bench_lineup("rand:tiny", entries, RunOptions(threads=1, **how)))


def test_each_row_equals_its_separate_measurement_except_the_times():
    found = rows_of(*ENTRIES)
    for entry, row in zip(ENTRIES, found, strict=True):
        (alone,) = bench_cases("rand:tiny", [entry.case], entry.options(RunOptions(threads=1)))
        assert row.facts == alone.facts and row.speed and alone.speed
        for name in ("batch", "pp", "tg", "depth", "context", "cache", "policy", "predicted_bytes"):
            assert getattr(row.speed, name) == getattr(alone.speed, name)
        for name in ("kv_bytes_held", "kv_peak_bytes", "tokens_read"):
            assert row.figure(name) == alone.figure(name)
        assert row.figure("cases_at_once") == 3 and alone.figure("cases_at_once") is None


def test_ratios_are_of_rates_in_the_same_rounds():
    first, *others = rows_of(*ENTRIES)
    assert first.ratio is None and first.ratio_to is None
    names = [entry.name for entry in ENTRIES]
    for index, other in enumerate(others, 1):
        assert other.ratio_to == names[0] == "policy full at depth 5"
        one, two = (row.speed.figures.samples for row in (first, other))
        assert two.interleaved_with == [name for name in names if name != names[index]]
        for phase in ("pp", "tg"):
            assert len(one.of(phase)) == len(two.of(phase)) == 3
            logs = np.log(two.of(phase)) - np.log(one.of(phase))
            assert min(logs) <= np.log(other.ratio[phase]["value"]) <= max(logs)
    assert names[1:] == ["policy h2o:budget=16 at depth 40", "cache none at depth 5, batch 2"]


def test_each_number_of_threads_has_its_own_lineup():
    rows = list(bench_lineup("rand:tiny", ENTRIES[:2], RunOptions(), threads=(1, 2)))
    assert [row.figure("threads") for row in rows] == [1, 1, 2, 2]
    assert [row.ratio is None for row in rows] == [True, False, True, False]


def test_the_time_limit_is_that_of_all_cases(monkeypatch):
    given = []

    def noted(sides, cases, **how):
        given.extend(case.budget_s for case in cases)
        raise InterruptedError

    monkeypatch.setattr(lineup, "interleave_cases", noted)
    timed = replace(CASE, precision=0.1, budget_s=2.0)
    with pytest.raises(InterruptedError):
        rows_of(*(replace(entry, case=replace(timed, depth=entry.case.depth)) for entry in ENTRIES))
    assert given == [6.0] * 3


def test_caches_that_do_not_fit_together_run_one_after_another(monkeypatch):
    monkeypatch.setattr(lineup, "free_memory_bytes", lambda: 1000)
    for row in rows_of(*ENTRIES):
        assert row.ratio is None and row.ratio_to is None and row.figure("cases_at_once") is None
        assert row.speed.figures.samples.interleaved_with is None and row.figure("tg_tok_s") > 0
        assert row.speed.not_interleaved.startswith("the caches of all 3 cases need ")
        assert Metrics.from_json(row.to_json()).to_json() == row.to_json()


def test_memory_counts_all_caches(monkeypatch):
    sizes = []
    for entries in (ENTRIES[:1] * 2, ENTRIES[:1] * 4):
        monkeypatch.setattr(lineup, "free_memory_bytes", lambda: 0)
        why = rows_of(*entries)[0].speed.not_interleaved
        sizes.append(int(why.split()[7]))
    row_bytes = 2 * rows_of(ENTRIES[0])[0].speed.predicted_bytes["kv"]
    assert_close([sizes[1] - sizes[0]], [row_bytes], rtol=0)


def test_a_row_that_the_model_cannot_have_is_refused_before_weights_are_read(monkeypatch):
    monkeypatch.setattr("qbench.speed.bench.load_model", lambda *_, **__: pytest.fail("read"))
    with pytest.raises(InputError, match="all layers of this model attend to all tokens"):
        rows_of(*ENTRIES, Entry("dynamic", "window", CASE))
    with pytest.raises(InputError, match="context holds"):
        rows_of(*ENTRIES, Entry("dynamic", "full", replace(CASE, depth=10**6)))


def test_under_a_limit_rows_keep_the_order_of_threads_and_neighbours_share_a_model():
    caches = ("full", "window:4")
    entries = [Entry("dynamic", policy, replace(CASE, depth=depth)) for policy in caches for depth in (0, 5)]
    options = RunOptions(memory_bytes=rss_bytes() + (1 << 30))  # this process ran other tests, whose memory counts too
    rows = list(bench_lineup("rand:tiny", entries, options, threads=(1, 2)))
    found = [(row.figure("threads"), row.figure("policy") or "full", row.figure("depth")) for row in rows]
    assert found == [(count, entry.policy, entry.case.depth) for count in (1, 2) for entry in entries]
    assert [bool(row.figure("load_seconds")) for row in rows] == [True, False] * 4
    assert {row.speed.not_interleaved for row in rows} == {lineup.LIMITED}
