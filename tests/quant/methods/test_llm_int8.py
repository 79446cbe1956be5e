"""LLM.int8() as a method: the features that it knows as outliers, and the worth of their float16 weights."""

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.calibrated import calibrated

from qbench.reference.outliers import scale_channels
from qbench.runtime import load_model
from quant.formats import get_format
from quant.methods import Layer, make_method
from quant.methods.llm_int8 import outlier_features
from quant.stats import InputStats

CONFIG = small_config("llama")
TOKENS = torch.randint(160, (4, 64), generator=torch.Generator().manual_seed(1))


def test_features_at_the_threshold_are_outliers():
    """5.999 rounds to float16 as 6, and beyond float16 is an outlier like any other."""
    assert outlier_features(np.array([1, 6, 5.99, 5.999, 1e6, 0], np.float32)).tolist() == [1, 3, 4]


@pytest.mark.parametrize("largest, features", [(5.0, None), (7.0, [2])], ids=["none", "one"])
def test_only_outlier_features_are_kept(largest, features):
    weight = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    stats = InputStats(9, np.array([1, 1, largest, 1], np.float32), np.ones(4, np.float32))
    layer = Layer({"a": weight, "b": weight}, {"a": "llm-int8", "b": "w8"})
    made = make_method("llm-int8", {}).quantize_layer(layer, {"a": stats, "b": stats})
    plain = get_format("llm-int8").quantize(weight)
    for part, array in plain.parts.items():
        np.testing.assert_array_equal(made["a"].parts[part], array)
    assert made["b"].format == "w8"
    if features is None:
        assert made["a"].parts.keys() == plain.parts.keys() and not made["a"].shared
    else:
        assert made["a"].shared["outlier_features"].tolist() == features
        np.testing.assert_array_equal(made["a"].parts["outlier_weight"], weight[:, features].astype(np.float16))


def test_a_model_with_outliers_comes_back():
    weights = random_weights(CONFIG)
    tensors = {name: torch.from_numpy(weight) for name, weight in weights.items()}
    outliers = ArraySource(CONFIG, {name: weight.numpy() for name, weight in scale_channels(tensors).items()})
    exact = load_model(ArraySource(CONFIG, weights), impl="reference")(TOKENS)

    def error(source, method, fmt):
        model = load_model(calibrated(source, TOKENS, make_method(method, {}), lambda name: fmt))
        return float((model(TOKENS) - exact).square().mean())

    plain_without = error(ArraySource(CONFIG, weights), "rtn", "w8a8")
    assert error(outliers, "llm-int8", "llm-int8") < 2 * plain_without
    assert error(outliers, "rtn", "llm-int8") > 2 * error(outliers, "llm-int8", "llm-int8")
    assert error(outliers, "rtn", "w8a8") > 20 * plain_without
