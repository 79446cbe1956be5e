"""Formats of grid points: every point under every sign, and grids that the kernels do not know."""

import subprocess

import numpy as np
import pytest
from support.amx import PYTHON
from support.block_weights import gguf_values
from support.close import assert_close

import cpu_kernels
from cpu_kernels.grids import grid_points
from cpu_kernels.linear import linear_ref, rounding_bound
from quant.formats import get_format
from quant.formats.bits import half_bytes
from quant.formats.lattice import SEVEN_SIGNS, LatticeFormat
from quant.formats.lattice_fit import LatticeBlocks

NAMES = ("iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s")
NUM_BLOCKS = 32  # 1024 points of 8

WRONG_GRIDS = """
import numpy as np, cpu_kernels, cpu_kernels.grids as grids
right, blocks = grids.grid_points("iq2_xxs"), {"blocks": np.zeros((1, 66), np.uint8)}
for points, message in ((right + 1, "grid: got the magnitude 9"), (right[1:], "expected uint8 [256, 8]")):
    grids.grid_points = lambda name: points
    try:
        cpu_kernels.PackedLinear("iq2_xxs", blocks, (1, 256))
    except ValueError as error:
        assert message in str(error), error
    else:
        raise AssertionError(message)
grids.grid_points = lambda name: right
cpu_kernels.PackedLinear("iq2_xxs", blocks, (1, 256))
"""


def every_point(name: str) -> np.ndarray:
    """uint8 [16, 2 blocks]: each number of a point, each byte of signs and each scale"""
    fmt, points = get_format(name), grid_points(name)
    assert isinstance(fmt, LatticeFormat)
    per_block = 256 // points.shape[1]
    number = np.arange(NUM_BLOCKS * per_block).reshape(NUM_BLOCKS, per_block) % len(points)
    signs = (np.arange(NUM_BLOCKS * 32, dtype=np.uint32) * 37).astype(np.uint8).reshape(NUM_BLOCKS, 32)
    scales = np.arange(NUM_BLOCKS * fmt.num_runs, dtype=np.uint32).astype(np.uint8).reshape(NUM_BLOCKS, -1) & 15
    d = np.linspace(-1, 1, NUM_BLOCKS).astype(np.float16)
    fit = LatticeBlocks(d, scales, number, SEVEN_SIGNS[signs & 127] if fmt.even_signs else signs)
    return np.concatenate([half_bytes(d), fmt.pack(fit)], axis=1).reshape(16, -1)


@pytest.mark.parametrize("name", NAMES)
def test_every_point_and_sign(isa, matmul, name):
    blocks = every_point(name)
    values = gguf_values(name, blocks)
    packed = cpu_kernels.PackedLinear(name, {"blocks": blocks}, values.shape)
    assert_close(packed.rows(np.arange(16)), values)
    x = np.random.default_rng(0).standard_normal((3, 512)).astype(np.float32)
    for path in ("direct", "tile"):
        assert_close(matmul(packed, x, isa, path=path), linear_ref(x, values), atol=rounding_bound(x, values))


def test_a_grid_that_the_kernels_do_not_know_is_refused():
    subprocess.run([*PYTHON, "-c", WRONG_GRIDS], check=True)
