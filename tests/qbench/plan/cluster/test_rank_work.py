"""The part of a rank, from the config and the tensor table, against the part that a rank loads."""

import pytest
from support.thread_ranks import model_on, run_ranks

from qbench.calibration.open_subject import open_subject
from qbench.plan.cluster.work import RankWork, Tokens, Whole
from qbench.rank_layout import GATHER, RankLayout
from qbench.run_options import RunOptions
from qbench.runtime.memory import predict_memory
from qbench.sources import open_source


@pytest.mark.parametrize(
    ("spec", "recipe", "layout"),
    [
        ("rand:tiny", None, RankLayout(tp=2)),
        ("rand:tiny", "q4_0", RankLayout(tp=2, pp=2)),
        ("rand:tiny", "rtn-w8a8", RankLayout(tp=2)),
        ("rand:tiny", "q8_0", RankLayout(tp=4, cut=GATHER)),
        ("rand:tiny", None, RankLayout(sp=2)),
        ("rand:tiny-mla-moe", None, RankLayout(ep=2, pp=2)),
    ],
    ids=str,
)
def test_weights_and_exchanges_are_those_of_the_loaded_part(spec, recipe, layout):
    source = open_subject(spec, RunOptions(recipe, threads=1)).source
    whole = Whole.of(source)

    def work(ranks):
        model = model_on(ranks, source)
        cache = model.new_cache(batch=1, capacity=128)
        return model.exchanges, model.weight_bytes, cache.bytes_per_token

    for rank, (exchanges, weight_bytes, per_token) in enumerate(run_ranks(layout, work)):
        planned = RankWork(whole, layout, rank)
        assert planned.exchanges == exchanges
        assert planned.weight_bytes == pytest.approx(weight_bytes, rel=0.001)
        assert planned.cache.bytes_per_token == per_token


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
