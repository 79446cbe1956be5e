"""Run options as JSON: keys that workers of other checkouts know, and the way back."""

import pytest

from qbench.cache_spec import CacheSpec
from qbench.run_options import RunOptions
from quant.errors import InputError


def test_a_worker_of_an_older_checkout_gets_no_key_that_it_lacks():
    known = {"recipe", "kv_format", "cache", "policy", "compute", "device", "threads"}
    assert set(RunOptions("q4_k_m", threads=2).to_json()) == known


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
    ],
)
def test_options_that_do_not_go_together(given, message):
    with pytest.raises(InputError, match=message):
        RunOptions(**given)
