"""The search agrees with brute force where every recipe and KV format of ref:llama is really measured."""

from itertools import islice

import pytest
from support.table_judge import TableJudge, brute_force, chosen_of

from qbench.recommend.candidates import CACHES, make_candidates
from qbench.recommend.goal import Goal
from qbench.recommend.search import search
from qbench.sources import open_source
from qbench.sweep.jobs import measure, quantize, reference

MODEL, RECIPES = "ref:llama", ("q8_0", "q4_k_m", "q3_k_m", "q2_k")
ONE_WINDOW = {"text": None, "max_windows": 1}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Candidates at 512 tokens and a judge that knows the KLD of each, by the jobs that a sweep runs."""
    folder, source = tmp_path_factory.mktemp("grid"), open_source(MODEL)
    of_model = {"model": MODEL, "fingerprint": source.fingerprint(), "threads": 1, "progress": lambda *state: None}
    reference(eval=ONE_WINDOW, folder=str(folder), **of_model)
    klds = {}
    for recipe in RECIPES:
        (folder / recipe).mkdir()
        made = quantize(recipe=recipe, calibration={}, folder=str(folder / recipe), **of_model)
        how = {"model": MODEL, "threads": 1, "progress": of_model["progress"], "eval": ONE_WINDOW, "bench": None}
        for cache in CACHES:
            kv = None if cache == "dense-f32" else cache
            row = measure(artifact=str(folder / recipe / made["file"]), kv=kv, logits=str(folder), **how)
            klds[recipe, cache] = row["kld"]["mean"]
    found = make_candidates(source, Goal(1, 512), RECIPES, CACHES)
    return found, TableJudge({one: klds[one.recipe, one.cache] for one in found}, {})


def test_a_coarser_cache_may_come_nearer(measured):
    """What the search must not assume the opposite of; the grid below would prove nothing without it."""
    candidates, judge = measured
    pairs = zip(candidates, islice(candidates, 1, None), strict=False)
    assert any(a.recipe == b.recipe and judge.klds[b] < judge.klds[a] for a, b in pairs)


def test_grid(measured):
    candidates, judge = measured
    sizes = sorted({one.total_bytes for one in candidates})
    for memory in [sizes[0] - 1, *sizes]:
        goal = Goal(memory, 512)
        assert chosen_of(search(candidates, goal, judge)) == brute_force(candidates, goal, judge)
