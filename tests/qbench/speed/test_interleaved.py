"""Who is timed when, and when it ends: with sides whose seconds are made up, and with real processes."""

import itertools
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from support.data import REPO

import cpu_kernels
from qbench.run.options import RunOptions
from qbench.run.work import MOST_ROUNDS, SpeedWork
from qbench.speed import interleaved
from qbench.speed.interleaved import interleave, interleave_cases, is_look, random_orders, random_tokens
from qbench.speed.timed_process import TimedProcess, of_checkout, speed_process
from qbench.statistics.intervals import median_interval
from quant.errors import InputError

CASE = SpeedWork(pp=4, tg=2, depth=3, repetitions=3)


class MadeUpSide:
    """Takes the given time, for prefill and decode; notes the steps of each call."""

    vocab_size, pid = 11, os.getpid()

    def __init__(self, seconds: Iterable[float], log: list, name: str = "a") -> None:
        self.times, self.log, self.name = iter(seconds), log, name

    def hold(self, tokens: list[list[int]], capacity: int) -> None:
        self.log.append((self.name, "hold", np.shape(tokens), capacity))

    def seconds(self, tokens: list[list[int]], step: int) -> float:
        self.log.append((self.name, step))
        return next(self.times)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(interleaved, "SETTLE_S", 0.0)


def steady(value: float = 1.0) -> Iterable[float]:
    return itertools.repeat(value)


def noisy(share: float, seed: int = 0) -> Iterable[float]:
    rng = np.random.default_rng(seed)
    return iter(lambda: float(np.exp(share * rng.standard_normal())), None)


def test_sides_take_turns_in_a_random_order_and_back():
    log, names = [], "abc"
    rounds = interleave([MadeUpSide(steady(), log, name) for name in names], CASE)
    assert log[:3] == [(name, "hold", (1, 3), 7) for name in names]
    phases = [log[start : start + 3] for start in range(3, len(log), 3)]
    assert all(sorted(phase) in ([(name, step) for name in names] for step in (1, 4)) for phase in phases)
    orders = ["".join(name for name, _ in phase) for phase in phases]
    assert orders[::2] == orders[1::2] and len(orders[::2]) == 4, "one round of warm-up and three that count"
    assert [order[::-1] for order in orders[:8:4]] == orders[2:8:4]
    assert rounds.stopped == "repetitions" and rounds.done == 3


def test_orders_are_random_and_fair():
    orders = list(itertools.islice(random_orders(4), 400))
    assert len(set(map(tuple, orders))) == 24 and [one[::-1] for one in orders[::2]] == orders[1::2]
    places = np.array(orders)
    # Each side is at each place in a quarter of the orders, within 4 deviations of as many independent ones.
    assert all(abs(np.mean(places == side, axis=0) - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 200) for side in range(4))


def test_sides_may_have_their_own_cases():
    log = []
    deep = SpeedWork(pp=4, tg=2, depth=9, batch=2, repetitions=3)
    rounds = interleave_cases([MadeUpSide(steady(), log, "a"), MadeUpSide(steady(2.0), log, "b")], [CASE, deep])
    assert log[:2] == [("a", "hold", (1, 3), 7), ("b", "hold", (2, 9), 13)]
    assert rounds.steady("tg", 0) == [1.0] * 3 and rounds.steady("tg", 1) == [2.0] * 3


def test_a_batch_is_held_and_given_whole():
    log = []
    interleave([MadeUpSide(steady(), log)], SpeedWork(pp=4, tg=0, depth=3, batch=5, repetitions=1))
    assert log == [("a", "hold", (5, 3), 7), ("a", 4), ("a", 4)]
    assert random_tokens(11, SpeedWork(pp=2, tg=9, batch=5)).shape == (5, 9)


def test_precision_ends_it_once_reached():
    case = SpeedWork(pp=4, tg=2, repetitions=3, precision=0.02)
    calm, rough = (interleave([MadeUpSide(noisy(share), [])], case) for share in (0.002, 0.1))
    assert calm.stopped == rough.stopped == "narrow"
    assert 10 <= calm.done <= 18 < rough.done


def test_looks_are_a_fifth_apart():
    assert [done for done in range(40) if is_look(done)] == [10, 12, 15, 18, 22, 27, 33]


@pytest.mark.exhaustive("150 simulated series take 5 seconds; when a series ends is in every run")
def test_a_series_that_ended_when_narrow_still_covers_the_median():
    """The comment on FIRST_LOOK, of noise that is correlated by half: a slow spell lasts some samples."""
    case = SpeedWork(pp=4, tg=0, repetitions=5, precision=0.02)
    runs, covered = 150, 0
    for seed in range(runs):
        rounds = interleave([MadeUpSide(spells(0.03, 0.5, seed), [])], case)
        low, high = median_interval(rounds.steady("pp", 0))
        covered += low <= 1.0 <= high
    expected = 0.927  # of 300 runs; within 3 deviations of both
    assert covered / runs >= expected - 3 * np.sqrt(expected * (1 - expected) * (1 / runs + 1 / 300))


def spells(share: float, correlation: float, seed: int) -> Iterable[float]:
    rng = np.random.default_rng(seed)
    state = rng.standard_normal()
    while True:
        yield float(np.exp(share * state))
        state = correlation * state + np.sqrt(1 - correlation**2) * rng.standard_normal()


def test_the_ratio_of_several_sides_must_be_narrow():
    def both_slow_at_once() -> Iterable[float]:
        return noisy(0.3, seed=1)  # the same for both: their ratio is 1 each round

    case = SpeedWork(pp=4, tg=0, repetitions=6, precision=0.02)
    rounds = interleave([MadeUpSide(both_slow_at_once(), []), MadeUpSide(both_slow_at_once(), [])], case)
    assert rounds.stopped == "narrow" and rounds.done == 10


def test_the_budget_ends_it_but_not_before_the_least():
    case = SpeedWork(pp=4, tg=2, repetitions=4, precision=1e-6, budget_s=0.0)
    rounds = interleave([MadeUpSide(noisy(0.1), [])], case)
    assert rounds.stopped == "budget" and rounds.done == 4


def test_without_a_budget_it_ends_at_last(monkeypatch):
    monkeypatch.setattr(interleaved, "MOST_ROUNDS", 20)
    rounds = interleave([MadeUpSide(noisy(0.1), [])], SpeedWork(pp=4, tg=0, repetitions=4, precision=1e-6))
    assert rounds.stopped == "repetitions" and rounds.done == 20 < MOST_ROUNDS


def test_a_warm_up_of_one_side_is_one_of_both_and_is_not_counted():
    slow_start = itertools.chain([3.0, 2.0, 1.5], steady())
    case = SpeedWork(pp=4, tg=0, repetitions=10)
    rounds = interleave([MadeUpSide(noisy(0.001), []), MadeUpSide(slow_start, [])], case)
    assert rounds.warm_up("pp") == 3 and rounds.done == 10
    assert rounds.of["pp"][1].seconds[:4] == [3.0, 2.0, 1.5, 1.0], "kept"
    assert rounds.steady("pp", 1) == [1.0] * 10 and len(rounds.steady("pp", 0)) == 10


@pytest.mark.parametrize(
    "settings, told",
    [
        ({"precision": 0.0}, "precision is 0.0"),
        ({"precision": 2.0}, "between 0 and 1"),
        ({"budget_s": 3.0}, "give a precision"),
        ({"precision": 0.1, "budget_s": -1.0}, "budget_s is -1"),
        ({"batch": 0}, "batch is 0"),
    ],
)
def test_impossible_settings_are_refused(settings, told):
    with pytest.raises(InputError, match=told):
        SpeedWork(**settings)


def checkout(folder: Path) -> Path:
    """This one, with the extension in place wherever that was built."""
    kernels = folder / "cpu_kernels"
    kernels.mkdir()
    inside = {path.name: path for path in (*(REPO / "cpu_kernels").iterdir(), Path(cpu_kernels._ext.__file__))}
    for name, path in inside.items():
        (kernels / name).symlink_to(path)
    for package in ("qbench", "quant", "gpu_kernels"):
        (folder / package).symlink_to(REPO / package)
    return folder


def test_two_real_processes_and_another_checkout(tmp_path):
    case = SpeedWork(pp=8, tg=2, depth=3, batch=2, repetitions=2)
    command, env = of_checkout(checkout(tmp_path))
    scalar = env | {"QBENCH_ISA": "scalar"}
    with (
        speed_process("rand:tiny", RunOptions(threads=1)) as ours,
        speed_process("rand:tiny", RunOptions("q8_0", threads=1), command=command, env=scalar) as other,
    ):
        rounds = interleave([ours, other], case)
        assert all(second > 0 for phase in rounds.of.values() for side in phase for second in side.seconds)
        assert ours.about["facts"]["code"] == other.about["facts"]["code"] and ours.vocab_size == other.vocab_size
        assert other.about["facts"]["isa"] == "scalar" and other.about["facts"]["recipe"] == "q8_0"
        memory = other.call("memory", {})
        assert memory["peak_rss_bytes"] >= memory["baseline_rss_bytes"] > 0


def test_another_checkout_runs_its_own_code(tmp_path):
    for package in ("qbench", "quant", "cpu_kernels"):
        (tmp_path / package).symlink_to(REPO / package)
    command, env = of_checkout(tmp_path)
    code = "import json, qbench; print(json.dumps({'result': {'file': qbench.__file__}})); input()"
    with TimedProcess("other", (*command[:-1], "-c", code), {}, env) as other:
        assert other.about["file"] == str(tmp_path / "qbench" / "__init__.py")


def test_a_worker_reports_the_reason_of_its_failure():
    with pytest.raises(InputError, match="'huge' is unknown"):
        speed_process("rand:huge", RunOptions(threads=1))
    with pytest.raises(InputError, match=r"m\.gguf's process ended with status 3: no room"):
        command = (sys.executable, "-c", "import sys; print('no room', file=sys.stderr); sys.exit(3)")
        speed_process("m.gguf", RunOptions(threads=1), command=command)
