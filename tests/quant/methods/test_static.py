"""Static: plain rounding, with the scale that spans the inputs that calibration saw."""

import numpy as np
import pytest

from quant.formats import get_format
from quant.methods import Layer, make_method
from quant.methods.smoothquant import SmoothQuant
from quant.stats import InputStats


@pytest.mark.parametrize("name, largest", [("fp8-w8a8-static", 448), ("w8a8-astatic", 127)])
def test_codes_match_rtn_under_the_scale_of_the_largest_input(name, largest):
    weight = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    absmax = np.linspace(0.5, 7, 64).astype(np.float32)
    layer, method = Layer({"w": weight}, {"w": name}), make_method("static", {})
    got = method.quantize_layer(layer, {"w": InputStats(1, absmax, absmax**2)})["w"]
    expected = get_format(name).quantize(weight)
    assert all(np.array_equal(got.parts[part], array) for part, array in expected.parts.items())
    assert got.shared["input_scale"].tolist() == [np.float32(7) / np.float32(largest)]
    for one in (method, SmoothQuant()):
        assert [shared.name for shared in one.shared(get_format(name), 64)] == ["input_scale"]
    assert method.shared(get_format("fp8-w8a8"), 64) == ()
