"""C++ encoders: the bytes of the NumPy codecs, on every instruction set and any number of threads."""

import numpy as np
import pytest
from support.threads import assert_threads_change_nothing

from cpu_kernels.encode import ENCODED_FORMATS, encode
from quant.formats import get_format

OP = "encode_q4_k"
WEIGHTS_PER_TASK = 1 << 14  # of encode.cpp


def blocks_of_every_kind(block_size: int, rng: np.random.Generator) -> np.ndarray:
    """[131, block_size] float32: no multiple of any vector's lanes; usual blocks, then ones that break encoders."""
    blocks = 0.02 * rng.standard_normal((131, block_size))
    blocks[20:40] = rng.standard_t(2, (20, block_size))
    blocks[40:50] = rng.integers(-9, 9, (10, block_size))  # ties, in the largest magnitude too
    blocks[50:60] *= rng.random((10, block_size)) < 0.03  # nearly all zero
    blocks[60], blocks[61], blocks[62], blocks[63] = 0.0, -0.0, 0.7, -0.7
    blocks[64:71] *= 10.0 ** np.array([[-43], [-36], [-20], [-5], [5], [9], [38]])
    blocks[71:75] = np.abs(blocks[71:75]) + 0.3  # no weight near zero, from above and from below
    blocks[75:79] = -np.abs(blocks[75:79]) - 0.3
    return np.clip(blocks, -3e38, 3e38).astype(np.float32)


@pytest.mark.parametrize("name", ENCODED_FORMATS)
@pytest.mark.parametrize("effort", ["fast", "best"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "importance"])
def test_bytes_match_the_codec(encode_as, name, isa, effort, weighted):
    rng, fmt = np.random.default_rng(11), get_format(name)
    blocks = blocks_of_every_kind(fmt.block_size, rng)
    period = 3
    importance = np.maximum(rng.random((period, fmt.block_size)) ** 4, 2.0**-20).astype(np.float32)
    rows, of_blocks = (importance, importance[np.arange(len(blocks)) % period]) if weighted else (None, None)
    expected = fmt.quantize_blocks(blocks, of_blocks, effort)
    for num_blocks in (1, 17, len(blocks)):
        np.testing.assert_array_equal(encode_as(isa, name, blocks[:num_blocks], rows, effort), expected[:num_blocks])


@pytest.mark.parametrize("name", ENCODED_FORMATS)
def test_threads_do_not_show(name):
    block_size, block_bytes = ENCODED_FORMATS[name]
    num_blocks = 3 * WEIGHTS_PER_TASK // block_size + 5
    rng = np.random.default_rng(12)
    blocks = rng.standard_normal((num_blocks, block_size)).astype(np.float32)
    importance = rng.uniform(0.01, 1, (7, block_size)).astype(np.float32)  # no divisor of the blocks of a task
    got = assert_threads_change_nothing((1, 2), lambda: encode(name, blocks, importance))
    assert got.shape == (num_blocks, block_bytes)
    # A block does not depend on its neighbours, except for the row of importance that its number selects.
    np.testing.assert_array_equal(got[-5:], encode(name, blocks[-5:], np.roll(importance, -(num_blocks - 5), axis=0)))


@pytest.mark.parametrize("name", ENCODED_FORMATS)
def test_quantize_takes_the_encoder_and_has_the_bytes_of_the_reference(name):
    fmt = get_format(name)
    weight = 0.02 * np.random.default_rng(12).standard_normal((3, 5, 512)).astype(np.float32)
    importance = np.random.default_rng(13).lognormal(0, 1, 512).astype(np.float32)
    for effort in ("fast", "best"):
        got = fmt.quantize(weight, importance=importance, effort=effort)
        expected = fmt.quantize_ref(weight, importance=importance, effort=effort)
        np.testing.assert_array_equal(got.parts["blocks"], expected.parts["blocks"])


@pytest.mark.parametrize("name", ENCODED_FORMATS)
def test_no_blocks(name):
    block_size, block_bytes = ENCODED_FORMATS[name]
    assert encode(name, np.empty((0, block_size), np.float32)).shape == (0, block_bytes)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (99, 31), (599, 17)], ids=str)
def test_non_finite_weights_are_refused(bad, place):
    blocks = np.zeros((600, 32), np.float32)  # two tasks
    blocks[place] = bad
    with pytest.raises(ValueError, match="blocks: got NaN or infinity, expected finite weights"):
        encode("q8_0", blocks)


BLOCKS = np.zeros((4, 256), np.float32)


def weighing(last: float) -> np.ndarray:
    """Importance of 1 except for the last weight."""
    importance = np.ones_like(BLOCKS)
    importance[-1, -1] = last
    return importance


@pytest.mark.parametrize(
    "call, error, message",
    [
        pytest.param(lambda: encode("q4_k", BLOCKS, BLOCKS[:0]), ValueError, "importance: got 0 rows", id="no rows"),
        pytest.param(lambda: encode("q4_k", BLOCKS, BLOCKS.T.copy()), ValueError, "importance", id="importance"),
        pytest.param(lambda: encode("q4_k", BLOCKS, weighing(np.nan)), ValueError, "importance: got nan", id="nan"),
        pytest.param(lambda: encode("q4_k", BLOCKS, weighing(-0.5)), ValueError, "importance: got -0.5", id="negative"),
        pytest.param(lambda: encode("q4_k", BLOCKS, weighing(0)), ValueError, "importance: got 0.0", id="zero"),
        pytest.param(lambda: encode("q4_k", BLOCKS, weighing(1.5)), ValueError, "above 0 and at most 1", id="above 1"),
        pytest.param(lambda: encode("q4_k", BLOCKS, effort="more"), ValueError, "effort: got 'more'", id="effort"),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()
