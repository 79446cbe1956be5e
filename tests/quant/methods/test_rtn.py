import numpy as np
import pytest
from support.random_linear import WRITTEN

from quant.errors import InputError
from quant.formats import get_format
from quant.methods import Layer, make_method

WEIGHT = (0.02 * np.random.default_rng(0).standard_normal((3, 256))).astype(np.float32)


@pytest.mark.parametrize("name", WRITTEN)
def test_rtn_is_the_format_s_own_rounding(name):
    got = make_method("rtn", {}).quantize_layer(Layer({"a": WEIGHT}, {"a": name}), {})["a"]
    expected = get_format(name).quantize_ref(WEIGHT)
    assert (got.format, got.shape) == (name, (3, 256))
    for part, array in expected.parts.items():
        np.testing.assert_array_equal(got.parts[part], array)


def test_layer_of_mixed_formats():
    layer = Layer({"a.weight": WEIGHT, "b.weight": -WEIGHT}, {"a.weight": "q4_k", "b.weight": "w8"})
    got = make_method("rtn", {}).quantize_layer(layer, {})
    assert {name: qtensor.format for name, qtensor in got.items()} == {"a.weight": "q4_k", "b.weight": "w8"}


def test_unknown_method_lists_the_known():
    with pytest.raises(InputError, match="unknown method 'gptqq', expected one of rtn, "):
        make_method("gptqq", {})


def test_unknown_option_lists_the_known():
    with pytest.raises(InputError, match="method rtn has no option act_order; it has effort"):
        make_method("rtn", {"act_order": True})
