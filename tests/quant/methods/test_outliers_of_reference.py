"""On ref:llama-outliers, which breaks plain W8A8, the methods that know outliers are as good as plain is without."""

from dataclasses import dataclass, field
from functools import cache
from itertools import islice

import numpy as np
import pytest
import torch
from support.calibrated import calibrated

from qbench.quality.kld.kld import divergence
from qbench.reference.corpus import EOS, documents, heldout_text
from qbench.runtime import Tokenizer, load_model
from qbench.sources import open_source
from quant.formats import get_format
from quant.methods import Method, make_method
from quant.methods.llm_int8 import outlier_features
from quant.rotation import RotatedSource

OUTLIERS = "ref:llama-outliers"


@cache
def tokens_of(kind: str) -> torch.Tensor:
    """calibration [4, 256], heldout [1, 384] int64"""
    text = heldout_text(num_chars=4000) if kind == "heldout" else "".join(EOS + d for d in islice(documents(5), 40))
    ids = torch.tensor(Tokenizer(open_source(OUTLIERS).tokenizer).encode(text))
    return ids[:384].view(1, 384) if kind == "heldout" else ids[:1024].view(4, 256)


@cache
def exact_logits() -> torch.Tensor:
    return load_model(open_source(OUTLIERS), impl="reference")(tokens_of("heldout"))[0]


@cache
def mean_kld(spec: str, method: str, format_name: str, *, rotated: bool = False, impl: str = "auto") -> float:
    """Mean KLD of the model with its linears quantized; the rest in float32."""
    source = RotatedSource(open_source(spec)) if rotated else open_source(spec)
    made = calibrated(source, tokens_of("calibration"), make_method(method, {}), lambda name: format_name)
    logits = load_model(made, impl=impl)(tokens_of("heldout"))[0]
    return float(divergence(logits, exact_logits(), tokens_of("heldout")[0]).kld.mean())


@dataclass(frozen=True)
class OutlierWeights(Method):
    """int8 for the weights of outlier features alone, on the grid of their rows or on one of their own; the rest exact.

    steps   filled with the weights of each linear's outlier features in steps of their rows, [N, F]
    """

    name = "outlier-weights"
    needs = frozenset({"absmax"})

    own_grid: bool = False
    steps: list[np.ndarray] = field(default_factory=list)

    def quantize_layer(self, layer, stats):
        made = {}
        for name, weight in layer.weights.items():
            features = outlier_features(stats[name].absmax)
            columns, weight = weight[:, features], weight.copy()
            row_step = np.abs(weight).max(axis=1, keepdims=True) / 127
            step = np.abs(columns).max(axis=0) / 127 if self.own_grid else row_step
            weight[:, features] = np.rint(columns / step) * step
            self.steps.append(np.abs(columns / row_step))
            made[name] = get_format("f32").quantize(weight)
        return made


@cache
def kld_of_outlier_weights(own_grid: bool) -> float:
    method = OutlierWeights(own_grid)
    made = calibrated(open_source(OUTLIERS), tokens_of("calibration"), method, lambda name: "f32")
    logits = load_model(made, impl="reference")(tokens_of("heldout"))[0]
    return float(divergence(logits, exact_logits(), tokens_of("heldout")[0]).kld.mean())


def plain_without_outliers() -> float:
    return mean_kld("ref:llama", "rtn", "w8a8")


@pytest.mark.parametrize("format_name, factor", [("w8a8", 100), ("w8a8-wtensor-atensor", 1000)])
def test_outliers_break_plain_int8(format_name, factor):
    assert mean_kld(OUTLIERS, "rtn", format_name) > factor * plain_without_outliers()


@pytest.mark.parametrize("method, format_name", [("smoothquant", "w8a8"), ("llm-int8", "llm-int8")])
def test_methods_for_outliers_are_as_good_as_plain_without_them(method, format_name):
    assert mean_kld(OUTLIERS, method, format_name) < 2 * plain_without_outliers()


def test_a_rotation_cures_the_same_outliers_as_smoothquant():
    assert mean_kld(OUTLIERS, "rtn", "w8a8", rotated=True) < 2 * plain_without_outliers()


def test_a_rotation_cures_weights_of_four_bits_too():
    """GPTQ alone does not: columns of outliers share their groups with ordinary ones."""
    rotated = mean_kld(OUTLIERS, "gptq", "w4g128", rotated=True, impl="reference")
    assert rotated < 0.5 * mean_kld(OUTLIERS, "gptq", "w4g128", impl="reference")


@pytest.mark.usefixtures("inputs_of_8_bits")  # inputs in bfloat16 know no outliers
def test_a_rotation_cures_inputs_of_groups_that_are_rounded_to_8_bits():
    """An outlier takes the digits of all inputs of its group, which costs more than weights of four bits do."""
    assert mean_kld(OUTLIERS, "gptq", "w4g128", rotated=True) < 0.05 * mean_kld(OUTLIERS, "gptq", "w4g128")


def test_bitsandbytes_loses_the_digits_of_outlier_weights():
    """All of its divergence is there when these weights alone are rounded, and gone when they alone are not."""
    bitsandbytes = mean_kld(OUTLIERS, "rtn", "llm-int8")
    assert bitsandbytes > 20 * plain_without_outliers()
    assert mean_kld(OUTLIERS, "llm-int8", "llm-int8") < 0.01 * bitsandbytes
    assert kld_of_outlier_weights(own_grid=False) == pytest.approx(bitsandbytes, rel=0.1)
    assert kld_of_outlier_weights(own_grid=True) < 0.01 * bitsandbytes, "it is the row's grid, not the eight bits"


def test_outlier_weights_are_a_part_of_a_step_of_their_rows():
    """Linears that read the residual stream; within a layer, outlier features have ordinary weights."""
    method = OutlierWeights()
    calibrated(open_source(OUTLIERS), tokens_of("calibration"), method, lambda name: "f32")
    smallest = [np.median(steps) for steps in method.steps if steps.size]
    assert len(smallest) > 12 and np.median(smallest) < 0.5, "most of them are nearest to 0"


def test_static_activations_come_back_too():
    assert mean_kld(OUTLIERS, "smoothquant", "w8a8-astatic") < 0.05 * mean_kld(OUTLIERS, "rtn", "w8a8-wtensor-atensor")
