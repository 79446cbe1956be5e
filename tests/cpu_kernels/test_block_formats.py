"""Python and C++ agree on every block format: which ones there are, and the sizes of their blocks."""

from pathlib import Path

import pytest
from support.block_weights import NUMPY_CODECS, WITHOUT_KERNELS

import cpu_kernels
from cpu_kernels.decode import DECODED_FORMATS
from cpu_kernels.encode import ENCODED_FORMATS
from quant.formats import BLOCK_FORMATS

QUANTIZED = {
    name: (fmt.block_size, fmt.block_bytes)
    for name, fmt in BLOCK_FORMATS.items()
    if fmt.block_size > 1 and name not in WITHOUT_KERNELS
}
CODED = {name: sizes for name, sizes in QUANTIZED.items() if name not in NUMPY_CODECS}
SOURCES = Path(__file__).parents[2] / "cpu_kernels/csrc/block_formats"


def test_every_format_except_numpy_ones_has_a_decoder_of_its_sizes():
    assert dict(DECODED_FORMATS) == CODED


def test_every_format_except_numpy_ones_has_an_encoder_of_its_sizes():
    assert dict(ENCODED_FORMATS) == CODED


@pytest.mark.parametrize("name", QUANTIZED)
def test_linears_have_its_sizes(name):
    """16 rows of one block are 16 blocks, packed; a row of less than a block is refused."""
    block_size, block_bytes = QUANTIZED[name]
    assert cpu_kernels.packed_linear_bytes(name, (16, block_size)) == 16 * block_bytes
    with pytest.raises(ValueError, match=f"multiple of {block_size} for {name}"):
        cpu_kernels.packed_linear_bytes(name, (16, block_size // 2))


def test_every_format_is_one_file():
    assert {path.stem for path in SOURCES.glob("*.inl")} - {"all"} == set(QUANTIZED)
