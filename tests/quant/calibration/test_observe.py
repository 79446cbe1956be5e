import numpy as np
import pytest
import torch
from support.close import assert_close

from quant.calibration.gram import ADD_GRAM, TILE
from quant.calibration.observe import SAMPLE_ROWS, Collector, Recorder
from quant.workers import workers

NAMES = ("q", "k")
K = TILE + 37  # two tiles, the second ragged


def record(x: torch.Tensor) -> Recorder:
    recorder = Recorder()
    recorder.inputs(NAMES, x)
    return recorder


def collect(batches, needs=("hessian", "sample"), num_threads=2, rounds=2, gram="fp32"):
    collector = Collector(lambda names: frozenset(needs), len(batches), ADD_GRAM[gram])
    with workers(num_threads) as pool:
        for start in range(0, len(batches), rounds):
            collector.add([record(x) for x in batches[start : start + rounds]], pool)
    return collector.stats()


@pytest.fixture(scope="module")
def batches():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 50, K, generator=generator) * torch.arange(1, K + 1) / K for _ in range(3)]


def test_statistics_match_all_rows_in_float64(batches):
    stats = collect(batches).inputs
    x = torch.cat([batch.flatten(0, 1) for batch in batches]).double().numpy()
    assert stats["q"] is stats["k"] and stats["q"].num_tokens == len(x) == 300
    assert_close(stats["q"].absmax, np.abs(x).max(0))
    assert_close(stats["q"].sum_squares, np.square(x).sum(0), rtol=2.0**-22)
    norms = np.linalg.norm(x, axis=0)
    error = np.abs(stats["q"].hessian - x.T @ x) / np.outer(norms, norms)
    assert error.max() <= 2.0**-24 * np.sqrt(len(x)), "float32 sums of 300 products"
    assert np.array_equal(stats["q"].hessian, stats["q"].hessian.T)


def test_a_bf16_hessian_is_that_of_the_rounded_rows(batches):
    hessian = collect(batches, gram="bf16").inputs["q"].hessian
    x = torch.cat([batch.flatten(0, 1) for batch in batches]).bfloat16().double().numpy()
    norms = np.linalg.norm(x, axis=0)
    error = np.abs(hessian - x.T @ x) / np.outer(norms, norms)
    assert error.max() <= 2.0**-24 * np.sqrt(len(x)), "float32 sums of 300 exact products"
    assert np.array_equal(hessian, hessian.T)


def test_rounding_to_bf16_is_a_damping_of_less_than_a_ten_thousandth(batches):
    """GPTQ adds 100 times as much to the diagonal; apart from that, nothing is systematic."""
    exact, rounded = (collect(batches, gram=gram).inputs["q"].hessian.astype(np.float64) for gram in ("fp32", "bf16"))
    scale = np.sqrt(np.outer(exact.diagonal(), exact.diagonal()))
    difference = (rounded - exact) / scale
    # One product of two roundings is off by 2**-9 in each; the mean of 300 of them by 300**-0.5 as much.
    assert np.abs(difference).max() <= 2.0**-8 * 300**-0.5 * 5
    assert abs(difference.mean()) <= 1e-4


@pytest.mark.parametrize("rounds", [1, 2])
def test_inputs_have_the_same_order_for_any_batches(rounds):
    """An expert may be met in a later batch than another."""
    late, both = Recorder(), Recorder()
    late.inputs(("b",), torch.ones(1, 4))
    both.inputs(("b",), torch.ones(1, 4))
    both.inputs(("a",), torch.ones(1, 4))
    collector = Collector(lambda names: frozenset(), 2)
    with workers(1) as pool:
        for start in range(0, 2, rounds):
            collector.add([late, both][start : start + rounds], pool)
    assert list(collector.stats().inputs) == ["a", "b"]


def test_sample_is_rows_spread_over_the_batches(batches):
    sample = collect(batches).inputs["q"].sample
    rows = torch.cat([batch.flatten(0, 1) for batch in batches]).numpy()
    assert np.array_equal(sample, rows), "fewer rows than wanted: all are kept"
    many = [torch.full((1, SAMPLE_ROWS, 1), float(number)) for number in range(4)]
    kept, counts = np.unique(collect(many).inputs["q"].sample, return_counts=True)
    assert list(kept) == [0, 1, 2, 3] and list(counts) == [SAMPLE_ROWS // 4] * 4


@pytest.mark.parametrize("gram", ADD_GRAM)
def test_threads_and_rounds_change_no_bit(batches, gram):
    first = collect(batches, num_threads=1, rounds=1, gram=gram).inputs["q"]
    for num_threads, rounds in ((1, 3), (3, 1), (3, 3)):
        other = collect(batches, num_threads=num_threads, rounds=rounds, gram=gram).inputs["q"]
        for field in ("absmax", "sum_squares", "hessian", "sample"):
            assert np.array_equal(getattr(first, field), getattr(other, field)), field


def test_unneeded_statistics_are_not_kept(batches):
    stats = collect(batches, needs=()).inputs["q"]
    assert stats.hessian is None and stats.sample is None


def test_ranges_of_keys_and_values():
    collector = Collector(lambda names: frozenset(), 2)
    k, v = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4)  # [B, G, T, D]
    recorders = [Recorder(), Recorder()]
    for batch, recorder in enumerate(recorders):
        recorder.keys_values(0, k[batch : batch + 1], v[batch : batch + 1])
    with workers(1) as pool:
        collector.add(recorders, pool)
    kv = collector.stats().kv
    assert_close(kv.k_absmax, k.abs().amax((0, 2)))
    assert_close(kv.v_absmax, v.abs().amax((0, 2)))


def test_an_input_without_rows_counts_nothing():
    stats = collect([torch.empty(0, 8)], needs=("hessian",)).inputs["q"]
    assert stats.num_tokens == 0 and not stats.sum_squares.any() and not stats.hessian.any()


def test_workers_use_one_thread_each_and_give_the_callers_number_back():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with workers(2) as pool:
            assert list(pool.map(lambda _: torch.get_num_threads(), range(4))) == [1] * 4
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
