import gguf
import numpy as np
import pytest
import torch

from gpu_kernels.gemm.gguf_gemm import dequantize_ref
from gpu_kernels.gemm.gguf_layout import BLOCK_BYTES, BLOCK_SIZE, pack_gguf
from quant.formats.k_affine import Q4_K

TYPES = list(BLOCK_BYTES)


def file_bytes(type_name, N, num_blocks):
    """Random bytes, whose float16 scales are made finite: exponents below the largest."""
    data = np.random.default_rng(0).integers(0, 256, size=(N, num_blocks, BLOCK_BYTES[type_name]), dtype=np.uint8)
    for end in {"q8_0": (2,), "q4_k": (2, 4), "q6_k": (210,)}[type_name]:
        data[:, :, end - 1] &= 0xBB  # sign, exponent and two bits of the mantissa: one bit of the exponent is off
    return data.reshape(N, -1)


@pytest.mark.parametrize("num_blocks", [1, 3])
@pytest.mark.parametrize("N", [1, 5])
@pytest.mark.parametrize("type_name", TYPES)
def test_packed_words_match_the_gguf_package(type_name, N, num_blocks):
    """Its decoder is in float32: two products and a subtraction, of numbers of at most twice the largest."""
    data = file_bytes(type_name, N, num_blocks)
    expected = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[type_name.upper()])
    got = dequantize_ref(pack_gguf(torch.from_numpy(data), type_name)).numpy()
    assert got.shape == expected.shape == (N, num_blocks * BLOCK_SIZE[type_name])
    largest = np.abs(expected).max()
    assert np.abs(got - expected).max() <= 4 * 2**-24 * 2 * largest


def test_q4_k_words_written_by_hand():
    """One super-block: q = sub-block + 1, scales 10 + sub-block, minima 20 + sub-block, d = 1, dmin = 2."""
    q = np.repeat(np.arange(1, 9, dtype=np.uint8), 32)[None, :]
    header = np.array([1, 2], dtype=np.float16).view(np.uint8)
    sub = np.arange(8, dtype=np.uint8)
    scales, minima = 10 + sub, 20 + sub
    second_half = (scales[4:] & 15) | (minima[4:] & 15) << 4
    packed_scales = np.concatenate([scales[:4] | scales[4:] >> 4 << 6, minima[:4] | minima[4:] >> 4 << 6, second_half])
    data = np.concatenate([header, packed_scales, Q4_K().pack_codes(q)[0]])[None, :]
    weight = pack_gguf(torch.from_numpy(data), "q4_k")
    assert weight.codes.shape == (2, 1, 32) and weight.codes.nbytes == 128
    assert (weight.codes[0] == 0x4321).all() and (weight.codes[1] == np.uint16(0x8765).view(np.int16)).all()
    assert weight.scales[:, 0].tolist() == scales.tolist() and weight.minima[:, 0].tolist() == minima.tolist()
    assert weight.d.item() == 1 and weight.dmin.item() == 2


REFUSED = {
    "another type": (torch.zeros(3, 144).byte(), "q5_k", NotImplementedError, r"expected one of \['q8_0', 'q4_k'"),
    "int8": (torch.zeros(3, 144).char(), "q4_k", TypeError, "got data torch.int8"),
    "part of a block": (torch.zeros(3, 145).byte(), "q4_k", ValueError, "a multiple of q4_k's 144 bytes"),
    "no blocks": (torch.zeros(3, 0).byte(), "q4_k", ValueError, "a multiple of q4_k's 144 bytes"),
}


@pytest.mark.parametrize("data, name, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_blocks_are_refused(data, name, error, message):
    with pytest.raises(error, match=message):
        pack_gguf(data, name)
