import numpy as np
import pytest
import torch

from quant.errors import InputError
from quant.formats import get_format

TORCH_DTYPE = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("name", TORCH_DTYPE)
def test_rounds_as_torch(name):
    bits = np.random.default_rng(0).integers(0, 2**32, 1 << 16, dtype=np.uint32)
    weight = bits.view(np.float32)
    weight = weight[np.isfinite(weight)]
    if name == "f16":
        weight = weight[np.abs(weight) <= 65504]
    fmt = get_format(name)
    got = fmt.dequantize_ref(fmt.quantize_ref(weight))
    np.testing.assert_array_equal(got, torch.from_numpy(weight).to(TORCH_DTYPE[name]).float().numpy())


@pytest.mark.parametrize("name", ["f32", "bf16"])
def test_keeps_nan_and_inf(name):
    fmt = get_format(name)
    weight = np.array([np.nan, np.inf, -np.inf, 1.0], dtype=np.float32)
    np.testing.assert_array_equal(fmt.dequantize_ref(fmt.quantize_ref(weight)), weight)


def test_f16_refuses_weights_that_would_be_inf():
    with pytest.raises(InputError, match="up to 65504, got 70000; use bf16"):
        get_format("f16").quantize_ref(np.float32([[1.0, 70000.0]]))


@pytest.mark.parametrize("name", TORCH_DTYPE)
def test_norms_are_rows_of_one_weight(name):
    fmt = get_format(name)
    qtensor = fmt.quantize_ref(np.arange(5, dtype=np.float32))
    assert qtensor.parts["blocks"].shape == (5, fmt.block_bytes)
    assert fmt.size_bytes((5,)) == qtensor.size_bytes
    np.testing.assert_array_equal(fmt.dequantize_ref(qtensor), np.arange(5))
    np.testing.assert_array_equal(fmt.dequantize_ref(qtensor.take_rows(np.array([4, 0]))), [4, 0])
