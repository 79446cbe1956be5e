"""Ours and others' attention, as they are timed, find the token that each query looks for."""

import numpy as np
import pytest
from support.llama_package import skip_without_llama_cpp

from qbench.kernels import attention_benchmarks as module
from qbench.kernels.attention_benchmarks import ALONE, OBSERVED, SCALES, OurAttention, attention_benchmarks
from qbench.kernels.benchmark import OURS
from quant.present import present

PEERS = {"f16": "llama.cpp", "int8": "llama.cpp", "int4": "llama.cpp"}


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(module, "SHAPES", ((6, 2, 64),))
    monkeypatch.setattr(module, "DEPTH", 192)
    monkeypatch.setattr(module, "COLD_BYTES", 200_000)


@pytest.mark.parametrize("name", SCALES)
def test_all_contenders_are_right_and_errors_are_found(small, name):
    decode, prefill = attention_benchmarks(name, (1, 4, 64), 1)
    assert decode.calls > 1 == prefill.calls and set(PEERS.get(name, "").split()) <= set(decode.contenders)
    for benchmark in (decode, prefill):
        for who, build in benchmark.contenders.items():
            if who == "llama.cpp":
                skip_without_llama_cpp()
            contender = build()
            contender.run()
            out = contender.output()
            assert benchmark.check(out).is_right, who
            assert not benchmark.check(np.roll(out, 1, axis=0)).is_right  # of other heads
    assert prefill.operations == 4 * 6 * 64 * 64 * 65 / 2
    assert decode.operations == 4 * 6 * 64 * 192


@pytest.mark.parametrize("name", ["f16", "int8"])
def test_weights_belong_to_the_last_queries(small, name):
    """Each query of a prefill gives its weight to its own key, and a decoded one to the middle of the text."""
    decode, prefill = attention_benchmarks(name, (1, 80), 1, with_mass=True)
    for benchmark, expected in ((decode, np.arange(192) == 96), (prefill, np.arange(80) >= 80 - OBSERVED)):
        weighing, alone = (benchmark.contenders[who]() for who in (OURS, ALONE))
        for contender in (weighing, alone):
            contender.run()
        assert isinstance(weighing, OurAttention) and np.array_equal(weighing.output(), alone.output())
        heads_per_kv = 3
        assert (
            np.abs(present(weighing.mass)[0] - heads_per_kv * expected).max() < heads_per_kv * 2**-6
        )  # weights of almost 1


def test_a_number_of_tokens_that_fills_no_page(small):
    (prefill,) = attention_benchmarks("int8", (100,), 1)
    ours = prefill.contenders[OURS]()
    ours.run()
    assert prefill.check(ours.output()).is_right and prefill.shape.endswith("@0")


def test_decode_reads_the_stored_tokens(small):
    bytes_of = {name: next(attention_benchmarks(name, (1,), 1)).moved_bytes for name in ("f32", "f16")}
    values = 2 * 2 * 192 * 64
    assert bytes_of["f32"] - bytes_of["f16"] == 2 * values
