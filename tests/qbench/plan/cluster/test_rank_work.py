"""The part of a rank, from the config and the tensor table, against the part that a rank loads."""

from dataclasses import replace

import pytest
import torch
from support.thread_ranks import model_on, run_ranks

from qbench.calibration.open_subject import open_subject
from qbench.plan.cluster.routed import Tokens
from qbench.plan.cluster.work import RankWork, Whole
from qbench.run.options import RunOptions
from qbench.run.rank_layout import ALL_TO_ALL, GATHER, RankLayout
from qbench.runtime.memory import predict_memory
from qbench.sources import open_source

STEPS = 10


@pytest.mark.parametrize(
    ("spec", "recipe", "layout"),
    [
        ("rand:tiny", None, RankLayout(tp=2)),
        ("rand:tiny", "q4_0", RankLayout(tp=2, pp=2)),
        ("rand:tiny", "rtn-w8a8", RankLayout(tp=2)),
        ("rand:tiny", "q8_0", RankLayout(tp=4, cut=GATHER)),
        ("rand:tiny", None, RankLayout(sp=2)),
        ("rand:tiny-mla-moe", None, RankLayout(ep=2, pp=2)),
        ("rand:tiny-mla-moe", None, RankLayout(ep=2, dispatch=ALL_TO_ALL)),
    ],
    ids=str,
)
def test_weights_and_exchanges_match_the_loaded_part(spec, recipe, layout):
    source = open_subject(spec, RunOptions(recipe, threads=1)).source
    whole = Whole.of(source)

    def work(ranks):
        model = model_on(ranks, source)
        cache = model.new_cache(batch=1, capacity=128)
        is_called = model.paths.choose(cache, 1)[0].name != "layers"
        return model.exchanges, model.weight_bytes, cache.bytes_per_token, is_called

    for rank, (exchanges, weight_bytes, per_token, is_called) in enumerate(run_ranks(layout, work)):
        planned = RankWork(whole, layout, rank)
        assert planned.exchanges == exchanges
        assert planned.weight_bytes == pytest.approx(weight_bytes, rel=0.001)
        assert planned.cache.bytes_per_token == per_token
        assert planned.is_called == is_called or planned.config.mla


def test_one_rank_has_the_memory_of_the_whole():
    source = open_source("rand:tiny")
    whole = predict_memory(source, 128, 2)
    alone = RankWork(Whole.of(source), RankLayout(), 0)
    assert (alone.weight_bytes, alone.kv_bytes(128, 2)) == (whole.resident_bytes, whole.kv_bytes)


def test_lanes_share_bytes_and_operations():
    """Norms and routers are whole on every lane, and so is the head of stages."""
    source = open_source("rand:tiny")
    model, tokens = Whole.of(source), Tokens(batch=2, count=1, depth=100)
    whole = RankWork(model, RankLayout(), 0)
    halves = [RankWork(model, RankLayout(tp=2), rank) for rank in range(2)]
    for part in ("layers", "head"):
        expected = getattr(whole, part)(tokens)
        found = [getattr(half, part)(tokens) for half in halves]
        assert sum(each.num_bytes for each in found) == expected.num_bytes
        assert sum(each.operations for each in found) == expected.operations


@pytest.mark.parametrize("batch", [1, 5])
def test_routed_traffic_is_near_that_of_a_run(batch):
    """A random router prefers some experts, so the counts that depend on it are near, and the others equal."""
    source = open_source("rand:tiny-mla-moe")
    layout = RankLayout(ep=2, dispatch=ALL_TO_ALL)

    def work(ranks):
        model = model_on(ranks, source)
        cache = model.new_cache(batch=batch, capacity=64)
        model(torch.randint(0, 100, (batch, 3), generator=torch.Generator().manual_seed(1)), cache, last_only=True)
        ranks.traffic.restart()
        for token in range(STEPS):
            model(torch.full((batch, 1), 7 * token), cache, last_only=True)
        return replace(ranks.traffic)

    counted = run_ranks(layout, work)
    planned = [RankWork(Whole.of(source), layout, rank).traffic(batch) for rank in range(2)]
    for run, one in zip(counted, planned, strict=True):
        for name in ("num_passes", "num_counts", "num_shown", "num_shows"):
            assert getattr(run, name) == STEPS * getattr(one, name), name
    for name in ("num_away", "num_guests"):
        found, expected = (sum(getattr(each, name) for each in rows) for rows in (counted, planned))
        assert found == pytest.approx(STEPS * expected, rel=0.25)
    assert sum(each.num_bundles for each in counted) <= STEPS * sum(each.num_bundles for each in planned)
