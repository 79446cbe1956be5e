"""The trellis code: its definition bit by bit, the least error of all paths, and the published error on normal data."""

import numpy as np
import pytest

from quant.formats.trellis import DEVIATION, TILE, TrellisCode

# Tseng et al. 2024, arXiv:2406.11235: mean squared error on N(0, 1) at 12 state bits, tail-biting, by bits
PUBLISHED = {1: 0.2803, 2: 0.0733, 3: 0.0198, 4: 0.0055}


def value_of(state: int) -> int:
    """The docstring's formula."""
    hashed = (state * 2472362639 + 2959306914) % 2**32
    return sum(hashed.to_bytes(4, "little")) - 510


@pytest.mark.parametrize("bits, state_bits", [(1, 8), (2, 12), (3, 16), (4, 11)])
def test_values_bit_by_bit(bits, state_bits):
    words = np.random.default_rng(bits).integers(0, 2**16, (2, 16 * bits)).astype(np.uint16)
    got = TrellisCode(bits, state_bits).decode_ref(words)
    for tile, expected in zip(words, got, strict=True):
        circle = "".join(f"{word:016b}" for word in tile)
        for t in range(TILE):
            end = (t + 1) * bits + len(circle)
            assert expected[t] == value_of(int((circle + circle)[end - state_bits : end], 2))


def least_error(code: TrellisCode, x: np.ndarray, end: int) -> float:
    """Squared error of the best circle that closes in the bits `end`: the Viterbi algorithm, one state at a time."""
    cost = {end: 0.0}
    for value in x:
        after: dict[int, float] = {}
        for bits, so_far in cost.items():
            for symbol in range(1 << code.bits):
                state = bits << code.bits | symbol
                total = so_far + (value_of(state) - float(value)) ** 2
                last = state % (1 << code.state_bits - code.bits)
                after[last] = min(total, after.get(last, np.inf))
        cost = after
    return cost[end]


def test_the_path_is_the_best_of_its_circle_and_near_the_best_of_all():
    code = TrellisCode(2, 8)
    x = (140 * np.random.default_rng(3).standard_normal((1, TILE))).astype(np.float32)
    packed = code.encode_ref(x)
    error = float(np.square(code.decode_ref(packed) - x).sum())
    own = int(code.states(packed)[0, 0]) >> code.bits
    assert error == pytest.approx(least_error(code, x[0], own), rel=1e-5)
    assert error <= 1.02 * min(least_error(code, x[0], end) for end in range(0, 64, 9))


def error_of(bits: int, state_bits: int, num_tiles: int) -> float:
    """Mean squared error on unit normal data"""
    x = np.random.default_rng(bits).standard_normal((num_tiles, TILE)).astype(np.float32)
    code, unit = TrellisCode(bits, state_bits), np.float32(DEVIATION[bits])
    return float(np.square(code.decode(code.encode(x * unit)) / unit - x).mean())


@pytest.mark.parametrize("bits", PUBLISHED)
def test_error_on_normal_data(bits):
    assert error_of(bits, 12, 200) <= 1.02 * PUBLISHED[bits]


@pytest.mark.exhaustive("2**16 states")
@pytest.mark.parametrize("bits, share", [(1, 0.97), (2, 0.96), (3, 0.94), (4, 0.9)])
def test_more_states_have_less_error(bits, share):
    """An ideal code has .25, .0625, .0156 and .0039 (Shannon)."""
    assert 4.0**-bits < error_of(bits, 16, 200) <= share * PUBLISHED[bits]
