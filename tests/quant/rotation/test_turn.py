"""Turns are orthogonal for every size, and spread one channel over all."""

import numpy as np
import pytest
from support.close import assert_close

from quant.rotation.turn import turn_of

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
