"""The search agrees with brute force: every candidate measured, the best of those that meet the goal taken."""

import random

import pytest
from support.data import REPO
from support.table_judge import TableJudge, brute_force, chosen_of, memory_of

from qbench.recommendation.candidates import KV_CHOICES, Candidate, make_candidates
from qbench.recommendation.goal import Goal
from qbench.recommendation.recommend import relaxations
from qbench.recommendation.search import GAIN, RUNNERS_UP, search
from qbench.sources import open_source
from qbench.store import load_records

QUICKSTART = ("bf16", "rtn-w8", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "rtn-w4g128", "q4_0")


def candidate(recipe: str, size: int, cache: str = "f32") -> Candidate:
    return Candidate(recipe, cache, memory_of(size))


@pytest.fixture(scope="module")
def quickstart():
    """The quickstart's recipes at 512 tokens, and the figures of each in this project's own records"""
    rows = load_records(REPO / "results" / "quickstart").drop_duplicates("recipe").set_index("recipe")
    found = make_candidates(open_source("ref:llama"), Goal(1, 512), QUICKSTART, ["f32"])
    klds = {one: float(rows.kld_mean[one.recipe]) for one in found}
    return found, TableJudge(klds, {one: float(rows.tg_tok_s[one.recipe]) for one in found})


def test_quickstart_grid(quickstart):
    candidates, judge = quickstart
    sizes = sorted(one.total_bytes for one in candidates)
    speeds = sorted(judge.speeds.values())
    for memory in [sizes[0] - 1, *sizes, sizes[-1] + 1]:
        for tps in [None, *speeds, speeds[-1] + 1]:
            goal = Goal(memory, 512, tps=tps)
            verdicts = search(candidates, goal, judge)
            assert chosen_of(verdicts) == brute_force(candidates, goal, judge)
            assert {one.candidate for one in verdicts} == set(candidates) and len(verdicts) == len(candidates)


def random_grid(rng, least: float):
    """Sizes, speeds and peaks as they come; KLD with other caches from `least` of that with the first that works."""
    candidates, klds, speeds, peaks = [], {}, {}, {}
    for recipe in QUICKSTART:
        first = rng.random()
        for cache in KV_CHOICES:
            unfit = "no such heads" if rng.random() < 0.1 else None
            one = Candidate(recipe, cache, memory_of(rng.randrange(1, 100)), unfit)
            klds[one] = None if rng.random() < 0.1 else first * rng.uniform(least, 1.5)
            speeds[one], peaks[one] = rng.choice((None, *range(1, 20))), one.total_bytes + rng.randrange(20)
            candidates.append(one)
    goal = Goal(rng.randrange(10, 110), 1, tps=rng.choice((None, *range(1, 20))), runtime_bytes=10)
    return candidates, goal, TableJudge(klds, speeds, peaks)


def check(candidates, goal, judge, **how):
    verdicts = search(candidates, goal, judge, **how)
    assert chosen_of(verdicts) == brute_force(candidates, goal, judge)
    assert {one.candidate for one in verdicts} == set(candidates) and len(verdicts) == len(candidates)
    assert len(set(judge.judged)) == len(judge.judged) and len(set(judge.timed)) == len(judge.timed)


@pytest.mark.parametrize("seed", range(100))
def test_random_grids_in_which_any_cache_may_be_the_nearest(seed):
    check(*random_grid(random.Random(seed), 0.0), gain=1.0)


@pytest.mark.parametrize("seed", range(100))
def test_random_grids_with_caches_that_gain_no_more_than_is_allowed_for(seed):
    """Any two caches of a recipe within GAIN of each other downwards: 1.5 * least is the most that a first one has."""
    check(*random_grid(random.Random(seed), 1.5 * (1 - GAIN)))


def test_no_more_is_measured_than_the_answer_takes():
    sizes = {"a": 10, "b": 20, "c": 30, "d": 40, "e": 99}
    candidates = [candidate(name, size, cache) for name, size in sizes.items() for cache in ("f32", "kv-f16")]
    klds = {one: {"a": 0.5, "b": 0.4, "c": 0.3, "d": 0.2, "e": 0.1}[one.recipe] for one in candidates}
    judge = TableJudge(klds, {one: 3.0 if one.recipe == "d" else 9.0 for one in candidates})
    told = {str(one.candidate): one for one in search(candidates, Goal(50, 1, tps=5), judge)}
    outcomes = {name: one.outcome for name, one in told.items() if len(name) == 1}
    assert outcomes == {"c": "answer", "b": "runner-up", "a": "runner-up", "d": "speed", "e": "memory"}
    assert (told["d"].short, told["e"].short) == (2, 49)
    assert told["d with kv-f16"].outcome == "speed" and told["c with kv-f16"].outcome == "worse"
    # d is too slow, and so is its other cache: that is not judged; of the three chosen each has its caches judged
    assert {str(one) for one in judge.judged} == {*"abcd", *(f"{name} with kv-f16" for name in "abc")}
    assert len(judge.timed) == 1 + RUNNERS_UP + 2


def test_caches_of_distant_recipes_are_not_measured():
    candidates = [candidate(name, 10, cache) for name in "abcde" for cache in ("f32", "kv-f16")]
    klds = {one: 0.1 * 2 ** "abcde".index(one.recipe) for one in candidates}
    judge = TableJudge(klds, {})
    left = [one for one in search(candidates, Goal(50, 1), judge) if one.outcome == "not measured"]
    assert [str(one.candidate) for one in left] == ["d with kv-f16", "e with kv-f16"]
    assert "25% nearer than with f32" in left[0].why


def test_the_runtime_counts():
    one = candidate("a", 10)
    judge = TableJudge({one: 0.1}, {})
    assert search([one], Goal(20, 1, runtime_bytes=10), judge)[0].outcome == "answer"
    (verdict,) = search([one], Goal(19, 1, runtime_bytes=10), judge)
    assert (verdict.outcome, verdict.short) == ("memory", 1)


def test_a_process_that_took_more_than_predicted_does_not_fit():
    large, small = candidate("a", 10), candidate("b", 5)
    judge = TableJudge({large: 0.1, small: 0.2}, {large: 9.0, small: 9.0}, {large: 51, small: 50})
    answer, left = search([large, small], Goal(50, 1, tps=1), judge)
    assert (answer.candidate, left.outcome, left.short) == (small, "peak", 1)
    (found,) = relaxations(Goal(50, 1, tps=1), [left])
    assert (found.limit, found.enough, found.candidate) == ("memory_bytes", 51, large)


def test_a_failure_is_reported_and_the_next_cache_tried():
    candidates = [candidate("a", 10), candidate("a", 8, "kv-f16")]
    judge = TableJudge({candidates[0]: None, candidates[1]: 0.1}, {})
    answer, failed = search(candidates, Goal(50, 1), judge)
    assert (answer.candidate, answer.outcome) == (candidates[1], "answer")
    assert (failed.outcome, failed.why) == ("failed", "the worker was killed")


RECIPES, CACHE_PAIR, RUNTIME = ("q8_0", "q4_0"), ("f32", "kv-int4"), 100_000_000


def relaxed(goal: Goal, speed: float = 10.0):
    source = open_source("ref:llama")
    candidates = make_candidates(source, goal, RECIPES, CACHE_PAIR)
    judge = TableJudge(dict.fromkeys(candidates, 0.1), dict.fromkeys(candidates, speed))
    return candidates, relaxations(goal, search(candidates, goal, judge))


def test_each_relaxation_is_just_enough():
    goal = Goal(115_000_000, 512, batch=4, runtime_bytes=RUNTIME)
    candidates, found = relaxed(goal)
    least = min(candidates, key=lambda one: one.total_bytes)
    assert {one.limit for one in found} == {"memory_bytes", "context", "batch"}
    assert [one.change for one in found] == sorted(one.change for one in found)
    for one in found:
        if one.limit == "memory_bytes":
            assert (one.enough, one.candidate) == (RUNTIME + least.total_bytes, least)
            continue
        for step, fits in ((0, True), (1, False)):
            limits = {"context": 512, "batch": 4} | {one.limit: one.enough + step}
            moved = make_candidates(open_source("ref:llama"), Goal(1, **limits), RECIPES, CACHE_PAIR)
            assert any(other.total_bytes <= 15_000_000 for other in moved) == fits


def test_relaxation_of_speed():
    _, (found,) = relaxed(Goal(10**9, 512, tps=20))
    assert (found.limit, found.asked, found.enough, found.change) == ("tps", 20, 10.0, 1.0)


def test_memory_that_no_shorter_context_saves():
    _, found = relaxed(Goal(1_000, 512))
    assert [one.limit for one in found] == ["memory_bytes"]
