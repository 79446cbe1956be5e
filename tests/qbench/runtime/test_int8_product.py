"""The int8 product against int64 sums, exactly, at every size and at the ends of the range."""

import pytest
import torch

from qbench.runtime.int8_product import EXACT_IN_FLOAT32, PRODUCTS, int8_product_name


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("row_size", [1, 2, 3, 63, 131, 4096])
@pytest.mark.parametrize("num_tokens", [1, 3, 17])
def test_exact(product, num_tokens, row_size):
    generator = torch.Generator().manual_seed(row_size)
    x = torch.randint(-128, 128, (num_tokens, row_size), dtype=torch.int8, generator=generator)
    weight = torch.randint(-128, 128, (19, row_size), dtype=torch.int8, generator=generator)
    y = PRODUCTS[product](x, weight)
    assert y.dtype == torch.int32
    assert torch.equal(y.long(), x.long() @ weight.long().T)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("code", [-128, 127])
def test_no_sum_saturates(product, code):
    row_size = 3 * EXACT_IN_FLOAT32 + 5
    x = torch.full((2, row_size), code, dtype=torch.int8)
    y = PRODUCTS[product](x, x)
    assert torch.equal(y, torch.full((2, 2), row_size * code * code, dtype=torch.int32))


def test_the_chosen_one_is_known():
    assert int8_product_name() in PRODUCTS
