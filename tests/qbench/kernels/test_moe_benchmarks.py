import numpy as np
import pytest

from qbench.kernels import moe_benchmarks as module
from qbench.kernels.benchmark import OURS
from qbench.kernels.moe_benchmarks import moe_benchmarks, route


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(module, "SHAPES", ((256, 512, 5, 2), (256, 96, 5, 2)))
    monkeypatch.setattr(module, "COLD_BYTES", 3_000_000)


def test_ours_is_right_and_errors_are_found(small):
    few, many, *narrow = moe_benchmarks("q4_k", (1, 64), 1)
    for benchmark in (few, many, *narrow):
        ours = benchmark.contenders[OURS]()
        ours.run()
        y = ours.output()
        assert benchmark.check(y).is_right and not benchmark.check(1.25 * y).is_right
    # Two experts a call of three matrices of 256 x 512, in 4.5 bits.
    assert few.moved_bytes == 2 * 3 * 256 * 512 * 4.5 / 8 + 2 * 4 * 256 and few.calls > 1 == many.calls
    assert many.operations == 64 * 2 * 3 * 2 * 256 * 512
    # Rows of 96 do not fit Q4_K: those of `down` are Q5_0.
    assert narrow[0].moved_bytes == 2 * 256 * 96 * (2 * 4.5 + 5.5) / 8 + 2 * 4 * 256


def test_rows_that_no_format_of_the_kind_holds_are_left_out(small):
    assert len(list(moe_benchmarks("w4g128", (1,), 1))) == 1


@pytest.mark.parametrize("name, operands", [("f16", "bf16"), ("q8_0", "int8"), ("f32", "fp32")])
def test_experts_have_the_operands_of_their_format_for_any_number_of_tokens(small, name, operands):
    assert {benchmark.arithmetic for benchmark in moe_benchmarks(name, (1, 64), 1)} == {operands}


def test_routing_is_to_different_experts_and_even():
    chosen, weights = route(4000, 8, 2, np.random.default_rng(0))
    assert (chosen[:, 0] != chosen[:, 1]).all()
    counts = np.bincount(chosen.ravel())
    # Binomial of 4000 draws at 1/4: deviation 27; six of them.
    assert np.abs(counts - 1000).max() < 6 * (4000 / 4 * 3 / 4) ** 0.5
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=2**-22)
