"""The original of a real model: the function of its file, with weights off the grid of the file's blocks."""

import numpy as np
import pytest
import torch
from support.close import assert_close

from qbench.runtime import load_model
from qbench.sources import open_source, real
from qbench.sources.real import RescaledSource
from quant.formats import dequantize, get_format
from quant.source import SourceView

TOKENS = torch.arange(3, 43)[None]


class GridSource(SourceView):
    """`source` with all matrices on the grid of q4_1."""

    def read(self, name):
        qtensor = super().read(name)
        if len(qtensor.shape) == 1:
            return qtensor
        weight = dequantize(get_format("q4_1").quantize_ref(dequantize(qtensor)))
        return get_format(qtensor.format).quantize_ref(weight)


def share_near_grid(weight: np.ndarray) -> float:
    """Share of the weights inside the range of a block of 32 that are within 5 % of a step from a point of q4_1."""
    blocks = weight.reshape(-1, 32).astype(np.float64)
    low, high = blocks.min(axis=1, keepdims=True), blocks.max(axis=1, keepdims=True)
    steps = (blocks - low) / (high - low) * 15
    inside = (blocks > low) & (blocks < high)
    return float((np.abs(steps - steps.round()) < 0.05)[inside].mean())


@pytest.mark.parametrize("spec", ["ref:llama", "ref:llama-8k"])
def test_the_logits_stay_and_the_weights_leave_the_grid(spec, monkeypatch):
    monkeypatch.setattr(real, "MATRIX", "f32")
    grid = GridSource(open_source(spec))
    original = RescaledSource(grid)
    of_grid, of_original = (load_model(source, impl="reference")(TOKENS) for source in (grid, original))
    assert_close(of_original, of_grid, atol=2**-14 * float(of_grid.abs().max()))
    linears = [name for name in grid.tensors if name.endswith("proj.weight")]
    for name in linears:
        before, after = (dequantize(source.read(name)) for source in (grid, original))
        assert share_near_grid(before) > 0.5
        assert share_near_grid(after) < 0.15, name


def test_the_original_is_the_same_each_time_and_another_by_another_seed():
    grid = open_source("ref:llama")
    first, again, other = RescaledSource(grid), RescaledSource(grid), RescaledSource(grid, seed=1)
    name = "model.layers.0.mlp.down_proj.weight"
    assert np.array_equal(first.read(name).parts["blocks"], again.read(name).parts["blocks"])
    assert not np.array_equal(first.read(name).parts["blocks"], other.read(name).parts["blocks"])
    assert first.fingerprint() == again.fingerprint() != other.fingerprint() != grid.fingerprint()


def test_the_embedding_stays():
    grid = open_source("ref:llama")
    name = "model.embed_tokens.weight"
    assert np.array_equal(dequantize(RescaledSource(grid).read(name)), dequantize(grid.read(name)))
