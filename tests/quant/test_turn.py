"""Turns are orthogonal for every size, and spread one channel over all."""

import numpy as np
import pytest
from support.close import assert_close

from quant.turn import hadamard, run_signs, turn_of, turn_runs

SIZES = [1, 2, 3, 7, 24, 64, 96, 160, 256, 320]


def matrix_of(size: int) -> np.ndarray:
    """[size, size], the turn written out as diag(signs) (F1 x F2 x ...)"""
    turn, matrix = turn_of(size), np.ones((1, 1))
    for factor in turn.factors:
        matrix = np.kron(matrix, factor)
    return turn.signs[:, None] * matrix


@pytest.mark.parametrize("size", SIZES)
def test_factors_are_the_matrix_and_it_is_orthogonal(size):
    matrix = matrix_of(size)
    values = np.random.default_rng(size).standard_normal((3, 2, size))
    assert_close(turn_of(size).apply(values), values @ matrix, rtol=0, atol=1e-12)
    assert_close(matrix @ matrix.T, np.eye(size), rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_one_channel_is_spread_over_all(size):
    """No entry is larger than sqrt(2) times the one of a Hadamard matrix, which is the least possible."""
    assert np.abs(matrix_of(size)).max() <= np.sqrt(2 / size) + 1e-12


def test_powers_of_two_are_hadamard_matrices():
    assert_close(np.abs(matrix_of(256)), np.full((256, 256), 1 / 16), rtol=0, atol=1e-12)


def test_signs_do_not_repeat_and_are_the_same_in_every_run():
    assert turn_of(8).signs.tolist() == [-1, 1, 1, -1, -1, -1, -1, -1]
    assert 100 < (turn_of(256).signs > 0).sum() < 156


RUNS = [16, 32, 64, 128]


@pytest.mark.parametrize("size", RUNS)
def test_runs_are_turned_by_signs_and_a_hadamard_matrix(size):
    matrix = turn_runs(np.eye(size, dtype=np.float32), size)
    assert_close(matrix, run_signs(size)[:, None] * hadamard(size), rtol=1e-7, atol=0)
    assert set(run_signs(size)) == {-1, 1}


def test_each_run_is_turned_alone_and_comes_back():
    values = np.random.default_rng(0).standard_normal((3, 48)).astype(np.float32)
    turned = turn_runs(values, 16)
    np.testing.assert_array_equal(turned[1, 16:32], turn_runs(values[1, 16:32], 16))
    assert_close(turn_runs(turned, 16, back=True), values, rtol=0, atol=1e-6)


@pytest.mark.parametrize("back", [False, True], ids=["there", "back"])
def test_butterflies_are_single_sums_in_a_fixed_order(back):
    """The bits of a loop over scalars, which kernels have to meet."""
    values, signs = np.random.default_rng(1).standard_normal(32).astype(np.float32), run_signs(32)
    loop = list(values if back else values * signs)
    for half in (1, 2, 4, 8, 16):
        for i in (i for i in range(32) if not i & half):
            loop[i], loop[i + half] = loop[i] + loop[i + half], loop[i] - loop[i + half]
    expected = np.array(loop) * np.float32(32**-0.5)
    assert expected.dtype == np.float32
    np.testing.assert_array_equal(turn_runs(values, 32, back), expected * signs if back else expected)


def test_signs_of_runs_are_the_same_in_every_run():
    bits = np.unpackbits(np.array([0xCC, 0xFD], np.uint8))
    np.testing.assert_array_equal(run_signs(16), 1 - 2.0 * bits)
