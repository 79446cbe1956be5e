"""C++ encoders of the formats without minima: the bytes of their NumPy codecs, on every instruction set."""

import numpy as np
import pytest

from quant.formats import get_format

cpu_kernels = pytest.importorskip("cpu_kernels", reason="the C++ extension is not built")
from cpu_kernels._ext import encode_blocks  # noqa: E402

NAMES = ["q8_0", "q4_0", "q5_0", "q3_k", "q6_k", "iq4_nl", "iq4_xs"]
ISAS = ["scalar", "avx2", "avx512"]


def needs_isa(name: str, isa: str) -> None:
    rows = [row for row in cpu_kernels.op_table() if row["op"] == f"encode_{name}" and row["impl"] == isa]
    if not rows or not rows[0]["available"]:
        pytest.skip(f"encode_{name} has no {isa} here")


def blocks_of_every_kind(block_size: int, rng: np.random.Generator) -> np.ndarray:
    """[131, block_size] float32: no multiple of any vector's lanes; usual blocks, then what breaks encoders."""
    blocks = 0.02 * rng.standard_normal((131, block_size))
    blocks[20:40] = rng.standard_t(2, (20, block_size))
    blocks[40:50] = rng.integers(-9, 9, (10, block_size))  # ties, in the largest magnitude too
    blocks[50:60] *= rng.random((10, block_size)) < 0.03  # nearly all zero
    blocks[60], blocks[61], blocks[62] = 0.0, -0.0, 0.7
    blocks[63:70] *= 10.0 ** np.array([[-43], [-36], [-20], [-5], [5], [9], [38]])
    return np.clip(blocks, -3e38, 3e38).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("effort", ["fast", "best"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "importance"])
def test_bytes_are_those_of_the_codec(name, isa, effort, weighted):
    needs_isa(name, isa)
    rng, fmt = np.random.default_rng(11), get_format(name)
    blocks = blocks_of_every_kind(fmt.block_size, rng)
    period = 3
    importance = np.maximum(rng.random((period, fmt.block_size)) ** 4, 2.0**-20).astype(np.float32)
    of_blocks = importance[np.arange(len(blocks)) % period] if weighted else None
    expected = fmt.quantize_blocks(blocks, of_blocks, effort)
    for num_blocks in (1, 17, len(blocks)):
        rows = importance if weighted else None
        got, ran = encode_blocks(name, blocks[:num_blocks], rows, effort == "best", isa)
        assert ran == isa
        np.testing.assert_array_equal(got, expected[:num_blocks])


@pytest.mark.parametrize("name", NAMES)
def test_quantize_takes_the_encoder_and_has_the_bytes_of_the_reference(name):
    fmt = get_format(name)
    weight = 0.02 * np.random.default_rng(12).standard_normal((3, 5, 512)).astype(np.float32)
    importance = np.random.default_rng(13).lognormal(0, 1, 512).astype(np.float32)
    for effort in ("fast", "best"):
        got = fmt.quantize(weight, importance=importance, effort=effort)
        expected = fmt.quantize_ref(weight, importance=importance, effort=effort)
        np.testing.assert_array_equal(got.parts["blocks"], expected.parts["blocks"])
