"""Others' linears, each against the float64 product; and ours, as they are timed."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.llama_package import skip_without_llama_cpp

import cpu_kernels
from qbench.kernels import linear_benchmarks as module
from qbench.kernels import llm_int8_benchmarks
from qbench.kernels.benchmark import OURS, Absent, Contender
from qbench.kernels.linear import packed_formats
from qbench.kernels.linear_benchmarks import Weight, contenders, linear_benchmarks
from qbench.kernels.peers import ggml
from qbench.kernels.peers.ggml import GgmlLinears
from qbench.kernels.peers.torch import refuse_saturation
from qbench.measure.host.llama_cpp_package import VARIABLE

NUM_ROWS, ROW_SIZE = 160, 256
OF_FORMAT = {
    "q4_0": {OURS, "llama.cpp", "torch-bfloat16"},
    "q6_k": {OURS, "llama.cpp", "torch-bfloat16"},
    "f32": {OURS, "llama.cpp", "torch-float32"},
    "f16": {OURS, "llama.cpp", "openvino", "torch-bfloat16"},
    "w8a8": {OURS, "torch-int8", "onednn-int8", "openvino", "torch-bfloat16"},
    "w4g128-asym": {OURS, "torch-int4", "torch-bfloat16"},
    "w4g128": {OURS, "torch-int4", "openvino", "torch-bfloat16"},
    "w4g128-act": {OURS, "torch-bfloat16"},
}
CASES = [(name, who) for name, peers in OF_FORMAT.items() for who in sorted(peers - {OURS})]


FOR_FEW_TOKENS = {"amx": {"avx512_vnni", "avx512_bf16"}}  # instruction sets that it leaves them to
VNNI = {"avx512_vnni", "amx"}  # with these torch adds products of 8 bits in 32


def made_or_saturated(make: Callable[[], Contender]) -> Contender:
    """The contender; a skip if its products saturate, which only a processor without VNNI excuses."""
    try:
        return make()
    except Absent as absent:
        assert "wrong here: saturates" in str(absent) and not VNNI & {*cpu_kernels.features()}
        pytest.skip(f"not timed on this processor: {absent}")


def test_a_product_that_saturates_is_refused():
    """64 products of 127 and 127, each pair of sums cut at 16 bits after the codes of x were made unsigned."""
    exact = torch.full((2, 3), 127 * 127 * 64)
    refuse_saturation(exact)
    with pytest.raises(Absent, match="wrong here: saturates"):
        refuse_saturation(torch.full((2, 3), 32 * 32767 - 128 * 127 * 64))


@pytest.mark.parametrize("name", OF_FORMAT)
def test_contenders_of_each_format_take_part(name):
    assert set(contenders(Weight(name, NUM_ROWS, ROW_SIZE, 3), 3, 1, 1)) == OF_FORMAT[name]


@pytest.mark.parametrize("num_tokens", [1, 5])
@pytest.mark.parametrize("name, who", CASES, ids="-".join)
def test_peer_gives_the_product(name, who, num_tokens):
    if who == "llama.cpp":
        skip_without_llama_cpp()
    if who == "openvino":
        pytest.importorskip("openvino", reason="openvino is not installed")
    weight = Weight(name, NUM_ROWS, ROW_SIZE, num_tokens)
    contender = made_or_saturated(contenders(weight, num_tokens, 2, 1)[who])
    contender.run()
    y = contender.output()
    assert y.shape == (num_tokens, NUM_ROWS) and weight.check(num_tokens, y).is_right
    assert contender.how not in ("", "not named")
    other = Weight(name, NUM_ROWS, ROW_SIZE, num_tokens)
    other.x = -weight.x
    assert not other.check(num_tokens, y).is_right
    assert np.array_equal(y[:, : NUM_ROWS - 128], y[:, 128:])  # rows repeat


@pytest.mark.parametrize("name", packed_formats())
def test_ours_is_timed_on_right_products(monkeypatch, name):
    monkeypatch.setattr(module, "SHAPES", ((NUM_ROWS, ROW_SIZE),))
    monkeypatch.setattr(module, "COLD_BYTES", 100_000)
    (one, many) = linear_benchmarks(name, (1, 64), 1)
    for benchmark in (one, many):
        ours = benchmark.contenders[OURS]()
        ours.run()
        assert benchmark.check(ours.output()).is_right
        few_of_f16 = name == "f16" and benchmark is one  # exact products, which bfloat16 has not
        best = cpu_kernels.chosen_isa("linear_f32" if few_of_f16 else f"linear_{name}")
        assert ours.how.split()[0] in {best, *FOR_FEW_TOKENS.get(best, ())}
    packed_bytes = cpu_kernels.packed_linear_bytes(name, (NUM_ROWS, ROW_SIZE))
    assert one.calls * packed_bytes >= 100_000 > (one.calls - 1) * packed_bytes
    assert one.moved_bytes == packed_bytes + 4 * (NUM_ROWS + ROW_SIZE)
    assert many.operations == 2 * 64 * NUM_ROWS * ROW_SIZE


def test_features_in_an_order_of_their_own_are_timed_on_right_products(monkeypatch):
    monkeypatch.setattr(module, "SHAPES", ((NUM_ROWS, ROW_SIZE),))
    (benchmark,) = linear_benchmarks("w4g128-act", (3,), 1)
    contender = benchmark.contenders[OURS]()
    contender.run()
    assert benchmark.check(contender.output()).is_right
    (plain,) = linear_benchmarks("w4g128", (3,), 1)
    assert not plain.check(contender.output()).is_right


def test_llm_int8_is_timed_on_right_products(monkeypatch):
    monkeypatch.setattr(module, "SHAPES", ((NUM_ROWS, ROW_SIZE),))
    for benchmark in llm_int8_benchmarks.llm_int8_benchmarks((1, 5)):
        assert benchmark.moved_bytes > NUM_ROWS * ROW_SIZE
        for who in (OURS, *(benchmark.contenders.keys() - {OURS})):
            contender = made_or_saturated(benchmark.contenders[who])
            contender.run()
            assert benchmark.check(contender.output()).is_right
            assert not benchmark.check(-contender.output()).is_right


@pytest.mark.parametrize("of_op", [linear_benchmarks, llm_int8_benchmarks.llm_int8_benchmarks], ids=["linear", "llm"])
def test_all_tokens_are_multiplied(monkeypatch, of_op):
    monkeypatch.setattr(module, "SHAPES", ((NUM_ROWS, ROW_SIZE),))
    monkeypatch.setattr(module, "WARM_BYTES", 1)
    about = ("q8_0", (1, 600), 1) if of_op is linear_benchmarks else ((1, 600),)
    *_, benchmark = of_op(*about)
    ours = benchmark.contenders[OURS]()
    ours.run()
    assert ours.output().shape == (600, NUM_ROWS) and benchmark.tokens == 600


def test_rows_that_a_format_cannot_hold_are_left_out(monkeypatch):
    monkeypatch.setattr(module, "SHAPES", ((16, 96),))
    assert list(linear_benchmarks("q4_k", (1,), 1)) == [] and len(list(linear_benchmarks("q4_0", (1,), 1))) == 1


@pytest.mark.parametrize("found, reason", [(None, "not installed"), ("/nowhere/x.py", "not the one that is known")])
def test_without_ggml_it_is_absent(monkeypatch, found, reason):
    spec = found and SimpleNamespace(origin=found)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    ggml.libraries.cache_clear()
    try:
        with pytest.raises(Absent, match=reason):
            GgmlLinears(8, np.zeros((1, 34), np.uint8), np.zeros((1, 32), np.float32), 1, 1)
    finally:
        ggml.libraries.cache_clear()
