"""Formats of grid points with signs: nearest points against a plain search, and bytes of weights that they can hold."""

import numpy as np
import pytest
from support.block_weights import random_blocks

from quant.formats import get_format
from quant.formats.bits import half_from_bytes
from quant.formats.lattice import lattice_of_format
from quant.formats.lattice_fit import LatticeBlocks, LatticeRuns

NAMES = ("iq3_xxs", "iq3_s", "iq2_xxs", "iq2_xs", "iq2_s")


def lattice(name: str):
    fmt = get_format(name)
    return lattice_of_format(name, fmt.even_signs, fmt.unit, fmt.num_runs)


@pytest.mark.parametrize("name", NAMES)
def test_points_are_the_nearest(name):
    """Against all points of the grid, one vector at a time, in float64."""
    rng, grid = np.random.default_rng(0), lattice(name)
    size = grid.points.shape[1]
    x, importance = rng.standard_normal((8, 40)), rng.lognormal(0, 1, (8, 40))
    x[:, :20] = np.abs(x[:, :20])  # an even number of negative weights: no sign has to change
    per_scale = rng.uniform(0.3, 0.6, 40) * grid.levels[-1]
    chosen = LatticeRuns(x.astype(np.float32), importance.astype(np.float32), grid).choose(per_scale.astype(np.float32))
    for run in range(40 if not grid.even else 20):
        y = np.abs(x[:, run]) * per_scale[run]
        for part in range(8 // size):
            own = slice(part * size, (part + 1) * size)
            errors = (importance[own, run] * (y[own] - grid.points) ** 2).sum(axis=1)
            got = errors[chosen.points[part, run]]
            assert got <= errors.min() + 2.0**-20 * (importance[own, run] * y[own] ** 2).sum()
    if not grid.even:
        np.testing.assert_array_equal(chosen.negative, x < 0)


@pytest.mark.parametrize("name", [name for name in NAMES if get_format(name).even_signs])
def test_the_sign_that_changes_costs_least(name):
    """Against all 128 sets of an even number of negative weights with their nearest points."""
    rng, grid = np.random.default_rng(1), lattice(name)
    size, runs = grid.points.shape[1], 12
    x, importance = rng.standard_normal((8, runs)), rng.lognormal(0, 1, (8, runs))
    per_scale = np.full(runs, 0.4 * grid.levels[-1])
    chosen = LatticeRuns(x.astype(np.float32), importance.astype(np.float32), grid).choose(per_scale.astype(np.float32))
    assert not (chosen.negative.sum(axis=0) % 2).any()
    y = (x * per_scale).reshape(-1, size, runs)
    importance = importance.reshape(-1, size, runs)
    sets = np.array([i for i in range(256) if i.bit_count() % 2 == 0])
    signs = 1 - 2 * (sets[:, None] >> np.arange(8) & 1).reshape(-1, len(y), size)  # [128, parts, size]
    least, got = np.zeros((len(sets), runs)), np.zeros(runs)
    for part in range(len(y)):
        turned = signs[:, part, :, None] * y[part]  # [128, size, runs]
        errors = (importance[part] * (turned[:, None] - grid.points[..., None]) ** 2).sum(axis=2)  # [128, P, runs]
        least += errors.min(axis=1)
        own = np.where(chosen.negative[part * size : (part + 1) * size], -1, 1) * grid.points[chosen.points[part]].T
        got += (importance[part] * (y[part] - own) ** 2).sum(axis=0)
    even = (x < 0).sum(axis=0) % 2 == 0
    assert even.any() and not even.all()
    np.testing.assert_allclose(got[even], least.min(axis=0)[even], rtol=2.0**-18)
    # The choice takes each weight by itself, the truth takes the grid too.
    assert got.sum() <= 1.02 * least.min(axis=0).sum()


@pytest.mark.parametrize("name", NAMES)
def test_packed_parts_come_back(name):
    """Every point, sign and scale that a block of random bytes has."""
    fmt = get_format(name)
    data = random_blocks(name, 50, 256)
    d = half_from_bytes(data[:, :2])
    scales = np.rint((fmt.read_scale(data) / (d[:, None] * np.float32(fmt.unit)) - 1) / 2)
    fit = LatticeBlocks(d.astype(np.float16), scales.astype(np.uint8), fmt.read_points(data), fmt.read_signs(data))
    np.testing.assert_array_equal(fmt.pack(fit), data[:, 2:])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("effort", ["fast", "best"])
def test_no_block_becomes_longer(name, effort):
    """The fitted scale projects the weights onto the signed points, so their length shrinks until d is rounded."""
    fmt = get_format(name)
    absmax = np.array([0.0, 1e-42, 1e-30, 1e-7, 1e-3, 1.0, 1e6, 1e20, 3e38])
    weight = (absmax[:, None] * np.random.default_rng(3).uniform(-1, 1, (len(absmax), 512))).astype(np.float32)
    got = fmt.dequantize_ref(fmt.quantize_ref(weight, effort=effort)).astype(np.float64)
    length, own = (np.linalg.norm(part.astype(np.float64).reshape(-1, 256), axis=1) for part in (got, weight))
    half_a_step = 16 * fmt.largest_weight / 65504 * 2.0**-25  # of d: in the length of 256 weights
    assert (length <= (1 + 2.0**-10) * own + half_a_step).all()
