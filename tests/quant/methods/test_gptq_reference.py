"""GPTQ on the layers of the reference model, with Hessians of its own inputs on text of its language."""

from itertools import islice

import numpy as np
import pytest
import torch
from support.calibration import layer_tensors

from qbench.calibration.texts import read_tokens
from qbench.runtime.streamed import StreamedDecoder
from qbench.sources import open_source
from quant.formats import dequantize
from quant.methods import Layer, make_method
from quant.models import EMBEDDING, ModelConfig
from quant.stats import InputStats

WINDOWS, LENGTH = 16, 256  # calibration, and as many tokens again to measure on


class Inputs:
    """Observer that keeps the input of each linear."""

    def __init__(self) -> None:
        self.of: dict[str, np.ndarray] = {}

    def inputs(self, names, x) -> None:
        rows = x.reshape(-1, x.shape[-1]).double().numpy()
        self.of |= dict.fromkeys(names, rows)

    def keys_values(self, layer, k, v) -> None:
        pass


@pytest.fixture(scope="module")
def layers():
    """(name, weight [N, K], statistics of the calibration windows, Hessian of fresh ones) of linears of two layers"""
    source = open_source("ref:llama")
    decoder = StreamedDecoder(ModelConfig.of(source))
    ids = np.concatenate(list(islice(read_tokens("generated", source, 7), 400)))
    tokens = torch.from_numpy(ids[: 2 * WINDOWS * LENGTH].reshape(2 * WINDOWS, LENGTH))
    x, found = decoder.embed({EMBEDDING: source.read(EMBEDDING)}, tokens), []
    for index in range(2):
        observer = Inputs()
        tensors = layer_tensors(source, index)
        x = decoder.layer(index, tensors)(x, observer)
        for part in ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"):
            name = f"model.layers.{index}.{part}.weight"
            seen, fresh = np.split(observer.of[name], 2)
            hessian = (seen.T @ seen).astype(np.float32)
            stats = InputStats(len(seen), np.abs(seen).max(axis=0), np.square(seen).sum(axis=0), hessian)
            found.append((name, dequantize(tensors[name]), stats, fresh.T @ fresh))
    return found


def mean_error(layers, method: str, fmt: str, **options) -> float:
    """Geometric mean over the linears of ||(W - Q) X||^2 / ||W X||^2 on fresh inputs."""
    errors = []
    for name, weight, stats, hessian in layers:
        layer = Layer({name: weight}, {name: fmt})
        off = weight - dequantize(make_method(method, options).quantize_layer(layer, {name: stats})[name])
        errors.append(np.einsum("ij,ij->", off @ hessian, off) / np.einsum("ij,ij->", weight @ hessian, weight))
    return float(np.exp(np.mean(np.log(errors))))


@pytest.mark.parametrize("fmt", ["w4g128", "w3g128", "w4g128-asym", "w8"])
def test_below_rounding_to_nearest_and_act_order_not_above_plain(layers, fmt):
    plain = mean_error(layers, "gptq", fmt, group_aware=False)
    assert mean_error(layers, "gptq", fmt, act_order=True) <= plain < mean_error(layers, "rtn", fmt)


@pytest.mark.parametrize("fmt", ["q4_k", "q6_k", "q3_k", "q2_k", "q4_0"])
def test_blocks_with_a_hessian_are_below_plain_ones(layers, fmt):
    feedback = mean_error(layers, "gptq", fmt)
    assert feedback < mean_error(layers, "imatrix", fmt)
    assert feedback < 0.8 * mean_error(layers, "rtn", fmt)
