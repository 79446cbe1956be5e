"""The share of weights near a grid: all of a file's own, and as many as by chance off the grid."""

import numpy as np
import pytest

from checks import off_grid
from checks.off_grid import NoisySource, linears_of, share_near_grid, steps_of
from qbench.calibration.write import open_quantized
from qbench.run.work import CalibrationWork
from qbench.sources import open_source
from qbench.sources.real import RescaledSource
from quant.job import make_job
from quant.recipes import get_recipe


@pytest.fixture(scope="module")
def file():
    """The reference model as a q4_1 file would have it."""
    return open_quantized(make_job(open_source("ref:llama"), get_recipe("q4_1")), CalibrationWork(), threads=1)


def test_only_the_file_is_on_its_grid(file):
    assert share_near_grid(file, file) > 0.999
    assert 0.08 < share_near_grid(RescaledSource(file), file) < 0.13
    assert 0.08 < share_near_grid(NoisySource(file), file) < 0.13


def test_noise_is_within_half_a_step(file):
    name = linears_of(file)[0]
    exact, noisy = (off_grid.dequantize(source.read(name)).reshape(-1, 32) for source in (file, NoisySource(file)))
    assert 0.4 < np.max(np.abs(noisy - exact) / steps_of(exact)) <= 0.5 + 1e-3


def test_a_step_is_the_smallest_distance_of_two_values():
    blocks = np.array([[0.0, 3.0, 1.0, 7.0], [5.0, 5.0, 5.0, 5.0]])
    assert steps_of(blocks).tolist() == [[1.0], [0.0]]
