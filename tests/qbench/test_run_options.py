"""Run options as JSON: keys that workers of other checkouts know, and the way back."""

import pytest

from qbench.run.cache_spec import CacheSpec
from qbench.run.options import RunOptions
from quant.errors import InputError


def test_a_worker_of_an_older_checkout_gets_no_key_that_it_lacks():
    known = {"recipe", "kv_format", "cache", "policy", "compute", "device", "threads"}
    assert set(RunOptions("q4_k_m", threads=2).to_json()) <= known


def test_options_come_back_from_their_document():
    options = RunOptions(policy="h2o:budget=64", prefill_chunk=32, attention="textbook")
    assert RunOptions.from_json(options.to_json()) == options
    assert options.cache_spec == CacheSpec(policy="h2o:budget=64", prefill_chunk=32)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cache": "paged", "policy": "h2o"}, "cache paged goes with policy full"),
        ({"policy": "h3o"}, "did you mean 'h2o'"),
        ({"prefill_chunk": 0}, "prefill_chunk is 0, expected at least 1 token"),
        ({"attention": "sdp"}, "unknown attention 'sdp'.*did you mean 'sdpa'"),
        ({"attention": "triton"}, "triton is not on device cpu; choose one of textbook, sdpa, kernel"),
        (
            {"attention": "kernel", "device": "cuda"},
            "kernel is not on device cuda; choose one of textbook, sdpa, triton",
        ),
        ({"attention": "kernel", "cache": "none"}, "cache none attends in torch; choose attention textbook or sdpa"),
        ({"attention": "sdpa", "policy": "sinks:4+20"}, "rotates each query twice, which attention sdpa does not"),
        ({"attention": "textbook", "policy": "sinks:4+20"}, "which attention textbook does not; choose kernel"),
        ({"attention": "sdpa", "policy": "h2o:budget=40"}, "reads attention weights, which sdpa does not return"),
        ({"prefill": "stra"}, "did you mean 'star'"),
        ({"prefill": "star", "policy": "h2o:64"}, "goes with policy full"),
        ({"prefill": "star", "cache": "paged"}, "goes with cache dynamic or static"),
        ({"prefill": "star", "cache": "none"}, "goes with cache dynamic or static"),
        ({"prefill": "star", "prefill_chunk": 64}, "leave out prefill chunk 64"),
        ({"prefill": "star", "attention": "sdpa"}, "goes with attention kernel"),
        ({"prefill": "star", "device": "cuda"}, "is on the CPU alone"),
    ],
    ids=str,
)
def test_options_that_do_not_go_together(given, message):
    with pytest.raises(InputError, match=message):
        RunOptions(**given)
