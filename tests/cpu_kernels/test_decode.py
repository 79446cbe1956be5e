"""C++ decoders: the values of the NumPy codecs, on every instruction set and any number of threads."""

import numpy as np
import pytest
from support.block_weights import EXPONENTS, HALVES
from support.threads import with_threads

from cpu_kernels.decode import DECODED_FORMATS, decode
from quant.formats import get_format
from quant.qtensor import QTensor

OP = "decode_q4_k"
WEIGHTS_PER_TASK = 1 << 14  # of block_codecs.h
GUARD = 32  # floats before and after an output
WITH_HALVES = [name for name in DECODED_FORMATS if HALVES[name]]


def random_blocks(name: str, num_blocks: int) -> np.ndarray:
    """[num_blocks, block_bytes] uint8: every code and every integer scale, float16 of either sign, subnormal and 0."""
    block_bytes = DECODED_FORMATS[name][1]
    rng = np.random.default_rng(21)
    blocks = rng.integers(0, 256, (num_blocks, block_bytes), dtype=np.uint8)
    for at in HALVES[name]:
        half = rng.standard_normal(num_blocks).astype(np.float16)
        half[1::7] = rng.standard_normal(len(half[1::7])) * 2.0**-20  # subnormal
        half[2::31], half[3::31] = 0.0, -0.0
        blocks[:, at : at + 2] = half[:, None].view(np.uint8)
    if name in EXPONENTS:
        blocks[:, EXPONENTS[name]] %= 250  # beyond, values may be infinite
    return blocks


def assert_same_bits(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.dtype == expected.dtype == np.float32
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("name", DECODED_FORMATS)
@pytest.mark.parametrize("num_blocks", [1, 17, 131])
def test_bits_match_the_codec(decode_as, name, isa, num_blocks):
    blocks = random_blocks(name, num_blocks)
    assert_same_bits(decode_as(isa, name, blocks), get_format(name).dequantize_blocks(blocks))


@pytest.mark.parametrize("name", WITH_HALVES)
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan], ids=str)
def test_scales_that_are_not_finite_are_seen(decode_as, name, isa, special):
    blocks = random_blocks(name, 5)
    at = HALVES[name][0]
    blocks[2, at : at + 2] = np.array([special], np.float16).view(np.uint8)
    with np.errstate(invalid="ignore"):  # infinity times a code of 0
        expected = get_format(name).dequantize_blocks(blocks)
    assert not np.isfinite(expected[2]).all()
    np.testing.assert_array_equal(decode_as(isa, name, blocks), expected)


def test_every_power_of_two(decode_as, isa):
    """MXFP4 has no other scales; the first two are subnormal, and the last takes 12 beyond float32."""
    blocks = np.random.default_rng(22).integers(0, 256, (256, 17), dtype=np.uint8)
    blocks[:, 0] = np.arange(256)
    with np.errstate(over="ignore"):
        expected = get_format("mxfp4").dequantize_blocks(blocks)
    assert_same_bits(decode_as(isa, "mxfp4", blocks), expected)


@pytest.mark.parametrize("name", DECODED_FORMATS)
def test_threads_do_not_show(name):
    num_blocks = 3 * WEIGHTS_PER_TASK // DECODED_FORMATS[name][0] + 5
    blocks = random_blocks(name, num_blocks)
    got = with_threads((1, 2), lambda: decode(name, blocks))
    assert_same_bits(got[0], got[1])
    assert_same_bits(got[0][-5:], get_format(name).dequantize_blocks(blocks[-5:]))


@pytest.mark.parametrize("name", DECODED_FORMATS)
def test_dequantize_takes_the_decoder(monkeypatch, name):
    fmt = get_format(name)
    blocks = random_blocks(name, 2 * 3 * 512 // fmt.block_size).reshape(2, 3, -1)
    qtensor = QTensor(name, (2, 3, 512), {"blocks": blocks})
    expected = fmt.dequantize_ref(qtensor)
    monkeypatch.setattr(fmt, "dequantize_blocks", None)  # the NumPy codec is not called
    assert_same_bits(fmt.dequantize(qtensor), expected)


@pytest.mark.parametrize("name", DECODED_FORMATS)
def test_output_given(decode_as, name, isa):
    """All of it is written, and nothing around it."""
    blocks, block_size = random_blocks(name, 19), DECODED_FORMATS[name][0]
    memory = np.full(19 * block_size + 2 * GUARD, np.nan, np.float32)
    out = memory[GUARD:-GUARD].reshape(19, block_size)
    assert decode_as(isa, name, blocks, out) is out
    assert_same_bits(out, get_format(name).dequantize_blocks(blocks))
    assert np.isnan(memory[:GUARD]).all() and np.isnan(memory[-GUARD:]).all()


@pytest.mark.parametrize("name", DECODED_FORMATS)
def test_no_blocks(name):
    block_size, block_bytes = DECODED_FORMATS[name]
    assert decode(name, np.empty((0, block_bytes), np.uint8)).shape == (0, block_size)


BLOCKS = np.zeros((4, 144), np.uint8)
READ_ONLY = np.zeros((4, 256), np.float32)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    "call, error, message",
    [
        pytest.param(lambda: decode("q4_k", BLOCKS, out=np.zeros((4, 256))), TypeError, "got float64", id="double"),
        pytest.param(lambda: decode("q4_k", BLOCKS, out=READ_ONLY), TypeError, "a writable", id="read-only"),
        pytest.param(
            lambda: decode("q4_k", BLOCKS, out=np.zeros((3, 256), np.float32)), ValueError, r"\[4, 256\]", id="shape"
        ),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()
