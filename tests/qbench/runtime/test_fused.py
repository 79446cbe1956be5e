"""Fused products give what each weight gives alone."""

import numpy as np
import pytest
import torch
from support.close import assert_close
from support.random_linear import random_qtensor, random_x

from qbench.runtime.fused import FusedLinears, concat_rows
from qbench.runtime.linear import choose_linear
from quant.formats import FORMATS, dequantize


@pytest.mark.parametrize("format_name", list(FORMATS))
def test_concat_rows_is_concatenation(format_name):
    qtensors = [random_qtensor(format_name, num_rows, 256, seed=num_rows) for num_rows in (3, 8, 5)]
    joined = concat_rows(qtensors)
    assert joined.shape == (16, 256)
    assert_close(dequantize(joined), np.concatenate([dequantize(qtensor) for qtensor in qtensors]))


@pytest.mark.parametrize(
    "formats, num_products",
    [(("bf16", "bf16", "bf16"), 1), (("q4_0", "q4_0", "q8_0"), 2), (("f32", "bf16", "f32"), 3)],
    ids=["one format", "two of one, one of another", "alternating"],
)
def test_fused_linears_equal_each_alone(formats, num_products):
    qtensors = [random_qtensor(name, 16 + 8 * i, 64, seed=i) for i, name in enumerate(formats)]
    biases = [None, torch.arange(24.0), None]
    fused = FusedLinears(qtensors, biases)
    assert len(fused.groups) == num_products
    x = random_x(6, 64).view(2, 3, 64)
    for qtensor, bias, got in zip(qtensors, biases, fused(x), strict=True):
        alone = choose_linear(qtensor.format).build(qtensor)(x)
        expected = alone if bias is None else alone + bias
        # the same products, summed in another order; bf16 results round to 8 bits
        assert_close(got, expected, rtol=2**-7 if qtensor.format == "bf16" else 0, atol=64 * 2**-20)
