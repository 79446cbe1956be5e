"""Formats that are only read: bytes of libggml and random bytes against the gguf package and libggml."""

import gguf
import numpy as np
import pytest
from support.block_weights import random_blocks
from support.ggml import ggml_dequantize, ggml_quantize, needs_ggml
from support.weights import make_weight

from quant.errors import InputError
from quant.formats import BLOCK_FORMATS, get_format
from quant.qtensor import QTensor
from quant.recipes.yaml_recipe import recipe_from

NUMBERS = {"f64": "<f8", "i8": "<i1", "i16": "<i2", "i32": "<i4", "i64": "<i8"}
READ = [name for name, fmt in BLOCK_FORMATS.items() if not fmt.writes and name not in NUMBERS]
# Types whose grid libggml searches for neighbours before the first block.
SLOW = pytest.mark.exhaustive("one to nine seconds of libggml's set-up per type")
ENCODED = [pytest.param(name, marks=SLOW if name[:3] in ("iq1", "iq2") else ()) for name in READ]
IN_GGUF = [name for name in READ if name not in ("q1_0", "q2_0")]  # the package has no dequantizer of these
# Types of which no file holds a tensor: llama.cpp makes them of activations while it multiplies.
OF_ACTIVATIONS = {"Q8_1", "Q8_K"}


def values_of(name: str, blocks: np.ndarray) -> np.ndarray:
    fmt = get_format(name)
    return fmt.dequantize(QTensor(name, (len(blocks), fmt.block_size), {"blocks": blocks}))


def test_every_type_of_the_gguf_package_is_read():
    known = {fmt.gguf_type for fmt in BLOCK_FORMATS.values()}
    assert {kind.name for kind in gguf.GGMLQuantizationType if kind not in known} == OF_ACTIVATIONS


@pytest.mark.parametrize("name", IN_GGUF)
def test_random_bytes_as_gguf(name):
    blocks = random_blocks(name, 500, get_format(name).block_size)
    expected = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name.upper()])
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(values_of(name, blocks), expected)


@needs_ggml
@pytest.mark.parametrize("name", READ)
def test_random_bytes_as_libggml(name):
    fmt, blocks = get_format(name), random_blocks(name, 500, get_format(name).block_size)
    np.testing.assert_array_equal(values_of(name, blocks), ggml_dequantize(blocks, fmt.gguf_type, fmt.block_size))


@needs_ggml
@pytest.mark.parametrize("name", ENCODED)
def test_bytes_of_libggml_are_near_the_weights(name):
    weight, fmt = make_weight("gauss"), get_format(name)
    blocks = ggml_quantize(weight, fmt.gguf_type, np.ones(weight.shape[1], np.float32))
    qtensor = QTensor(name, weight.shape, {"blocks": blocks})
    error = np.linalg.norm(fmt.dequantize(qtensor) - weight) / np.linalg.norm(weight)
    assert 2.0**-fmt.bits_per_weight < error < 0.9  # rate-distortion of a normal weight; zeros are 1 away
    codes = fmt.weight_codes(qtensor)
    np.testing.assert_array_equal(codes.scale * codes.level, fmt.dequantize(qtensor))
    assert len(np.unique(codes.level)) <= codes.num_levels


@pytest.mark.parametrize("name, dtype", NUMBERS.items())
def test_plain_numbers(name, dtype):
    numbers = np.array([[0, 1, -2, 100, -100]]).astype(dtype)
    qtensor = QTensor(name, (1, 5), {"blocks": numbers.view(np.uint8)})
    np.testing.assert_array_equal(get_format(name).dequantize(qtensor), [[0, 1, -2, 100, -100]])
    assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name.upper()]] == (1, numbers.itemsize)


@pytest.mark.parametrize("name", [*READ, *NUMBERS])
def test_recipes_and_codecs_refuse_to_write_it(name):
    with pytest.raises(InputError, match=f"{name} is read but not written here"):
        recipe_from({"container": "gguf", "default": name}, "mine")
    with pytest.raises(InputError, match=f"{name} is read but not written here"):
        get_format(name).quantize(np.zeros((1, 256), np.float32))
