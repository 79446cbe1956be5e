"""The search agrees with brute force where every recipe and KV format of ref:llama is really measured."""

from itertools import islice

import pytest
from support.table_judge import TableJudge, brute_force, chosen_of

from qbench.recommendation.candidates import KV_CHOICES, make_candidates
from qbench.recommendation.goal import Goal
from qbench.recommendation.search import search
from qbench.run.options import RunOptions
from qbench.run.work import QualityWork
from qbench.sources import open_source
from qbench.sweeps.job import MeasureJob, QuantizeJob, ReferenceJob, Work
from qbench.sweeps.jobs import measure, quantize, reference

MODEL, RECIPES = "ref:llama", ("q8_0", "q4_k_m", "q3_k_m", "q2_k")
ONE_WINDOW = QualityWork(max_windows=1)


def no_progress(*state) -> None:
    pass


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Candidates at 512 tokens and a judge that knows the KLD of each, by the jobs that a sweep runs."""
    folder, source = tmp_path_factory.mktemp("grid"), open_source(MODEL)
    fingerprint = source.fingerprint()
    reference(ReferenceJob(MODEL, fingerprint, 1, str(folder), quality=ONE_WINDOW), no_progress)
    klds = {}
    for recipe in RECIPES:
        (folder / recipe).mkdir()
        job = QuantizeJob(MODEL, fingerprint, 1, str(folder / recipe), recipe=recipe, calibration=None)
        made = quantize(job, no_progress)
        for cache in KV_CHOICES:
            options = RunOptions(kv_format=None if cache == "f32" else cache, threads=1)
            artifact = str(folder / recipe / made.file)
            row = measure(MeasureJob(artifact, MODEL, options, str(folder), Work(ONE_WINDOW)), no_progress)
            klds[recipe, cache] = row.quality.mean_kld
    found = make_candidates(source, Goal(1, 512), RECIPES, KV_CHOICES)
    return found, TableJudge({one: klds[one.recipe, one.kv_format] for one in found}, {})


@pytest.mark.exhaustive("four seconds; random grids of the same shape are in every run")
def test_a_coarser_cache_may_come_nearer(measured):
    """The search must not assume the opposite; the grid below would prove nothing without it."""
    candidates, judge = measured
    pairs = zip(candidates, islice(candidates, 1, None), strict=False)
    assert any(a.recipe == b.recipe and judge.klds[b] < judge.klds[a] for a, b in pairs)


def test_grid_choice_matches_brute_force(measured):
    candidates, judge = measured
    sizes = sorted({one.total_bytes for one in candidates})
    for memory in [sizes[0] - 1, *sizes]:
        goal = Goal(memory, 512)
        assert chosen_of(search(candidates, goal, judge)) == brute_force(candidates, goal, judge)
