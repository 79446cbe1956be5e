"""GPTQ on the layers of the reference model, with Hessians of its own inputs on text of its language."""

import numpy as np
import pytest
from support.gptq_variants import FACTORS, Improved, layers_of, mean_error

from quant.formats import get_format
from quant.methods import Layer, make_method


@pytest.fixture(scope="module")
def layers():
    return layers_of()


@pytest.mark.parametrize("fmt", ["w4g128", "w3g128", "w4g128-asym", "w8"])
def test_below_rounding_to_nearest_and_act_order_not_above_plain(layers, fmt):
    plain = mean_error(layers, "gptq", fmt, group_aware=False)
    assert mean_error(layers, "gptq", fmt, act_order=True) <= plain < mean_error(layers, "rtn", fmt)


@pytest.mark.parametrize("fmt", ["q4_k", "q6_k", "q3_k", "q2_k", "q4_0"])
def test_blocks_with_a_hessian_are_below_plain_ones(layers, fmt):
    feedback = mean_error(layers, "gptq", fmt)
    assert feedback < mean_error(layers, "imatrix", fmt)
    assert feedback < 0.8 * mean_error(layers, "rtn", fmt)


@pytest.mark.parametrize("fmt", FACTORS)
def test_each_step_of_the_variants_lowers_its_loss(layers, fmt):
    """The loss of the measuring script is tr(E H E^T) of the bytes that it packs."""
    name, weight, stats, _ = layers[0]
    weight, hessian = weight[:32], stats.hessian.astype(np.float64) + np.eye(weight.shape[1])
    made = make_method("gptq", {}).quantize_layer(Layer({name: weight}, {name: fmt}), {name: stats})[name]
    improved = Improved(get_format(fmt), made, weight.astype(np.float64), hessian)
    losses = [improved.loss()]
    for step in (improved.refit_factors, lambda: improved.move_codes(np.arange(weight.shape[1]))):
        step()
        losses.append(improved.loss())
        off = get_format(fmt).dequantize(improved.packed()).astype(np.float64) - weight
        np.testing.assert_allclose(losses[-1], np.einsum("nk,kl,nl->n", off, hessian, off), rtol=1e-5)
    assert (losses[1] <= losses[0]).all() and (losses[2] <= losses[1] * (1 + 1e-6)).all()
    assert losses[2].sum() < 0.99 * losses[1].sum() < losses[0].sum()
