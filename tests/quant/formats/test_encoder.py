"""Without the C++ kernels the NumPy codecs do the work, and nobody sees it in the bytes."""

import sys

import numpy as np
import pytest

from quant.formats import get_format
from quant.formats.base import find_encoder

WEIGHT = (0.02 * np.random.default_rng(0).standard_normal((3, 512))).astype(np.float32)
IMPORTANCE = np.random.default_rng(1).lognormal(0, 1, 512).astype(np.float32)


@pytest.fixture
def no_kernels(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "cpu_kernels"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cpu_kernels._ext", None)  # as if it could not be found


@pytest.mark.parametrize("name", ["q8_0", "q2_k", "q4_k", "iq4_xs"])
def test_the_bytes_are_the_same_without_kernels(request, name):
    fmt = get_format(name)
    assert find_encoder(name) is not None
    with_kernels = fmt.quantize(WEIGHT, importance=IMPORTANCE).parts["blocks"]
    blocks = WEIGHT.reshape(-1, fmt.block_size)
    encoded = fmt.encode_blocks(blocks)
    request.getfixturevalue("no_kernels")
    assert find_encoder(name) is None
    np.testing.assert_array_equal(fmt.quantize(WEIGHT, importance=IMPORTANCE).parts["blocks"], with_kernels)
    np.testing.assert_array_equal(fmt.encode_blocks(blocks), encoded)


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
def test_formats_without_a_search_have_no_kernel(name):
    assert find_encoder(name) is None
