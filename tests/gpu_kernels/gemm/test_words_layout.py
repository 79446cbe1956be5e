import numpy as np
import pytest
import torch

from gpu_kernels.gemm.words_layout import block_k, pack_codes, pack_words, unpack_codes, unpack_words_ref
from quant.formats.int_group import IntGroupFormat

ODD = (1, 3, 63, 131)


def codes(N, K, seed=0, bits=4):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-(2 ** (bits - 1)), 2 ** (bits - 1), (N, K), generator=generator, dtype=torch.int8)


def test_words_of_4_bits_written_by_hand():
    """One row: feature k has the code k // 32 except feature 1, whose code is 7; features past 128 are in block 1."""
    q = (torch.arange(130) // 32).to(torch.int8)[None, :]
    q[0, 1] = 7
    words = pack_codes(q, 4)
    assert words.shape == (2, 1, 32) and words.dtype == torch.int16
    assert words[0, 0, 0] == np.uint16(0xBA98).view(np.int16)  # 3, 2, 1, 0 and 8 each
    assert words[0, 0, 1] == np.uint16(0xBA9F).view(np.int16)
    assert words[1, 0, 0] == np.uint16(0x888C).view(np.int16)  # feature 128 has the code 4; past K the code is 0
    assert words[1, 0, 2] == np.uint16(0x8888).view(np.int16)


def test_words_of_8_bits_written_by_hand():
    words = pack_codes(torch.arange(-60, 6).to(torch.int8)[None, :], 8)  # 66 features
    assert words.shape == (2, 1, 32)
    assert words[0, 0, 0] == np.uint16((32 - 60 + 128) << 8 | (0 - 60 + 128)).view(np.int16)
    assert words[0, 0, 31] == np.uint16((63 - 60 + 128) << 8 | (31 - 60 + 128)).view(np.int16)
    assert words[1, 0, 1] == np.uint16(0x8000 | (65 - 60 + 128)).view(np.int16)
    assert words[1, 0, 2] == np.uint16(0x8080).view(np.int16)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("K", ODD)
@pytest.mark.parametrize("N", ODD)
def test_round_trip(N, K, bits):
    q = codes(N, K, bits=bits)
    words = pack_codes(q, bits)
    assert words.nbytes == -(-K // block_k(bits)) * N * 64
    assert torch.equal(unpack_codes(words, K, bits), q)


@pytest.mark.parametrize("name", ["w4g32", "w4g64-asym", "w4g128-asym", "w4", "w8", "w8g128-asym"])
def test_packed_words_match_the_artifact(name):
    """The formats' own decoder, on an artifact's tensors, in float32: one rounding of scale * code away."""
    format_ = IntGroupFormat.parse(name)
    weight = np.random.default_rng(0).normal(size=(5, 256)).astype(np.float32)
    qtensor = format_.quantize_ref(weight)
    q, scale, zero_point = map(torch.from_numpy, format_.unpack(qtensor)[:3])
    packed = pack_words(q, scale, None if format_.symmetric else zero_point, bits=format_.bits)
    assert torch.equal(unpack_words_ref(packed).float(), torch.from_numpy(format_.dequantize_ref(qtensor)))


def test_act_order():
    """GPTQ's g_idx: the group of each feature, in no order."""
    q, scale = codes(3, 256), torch.rand(3, 4, generator=torch.Generator().manual_seed(1)).half()
    zero_point = codes(3, 4, seed=2)
    g_idx = torch.randperm(256, generator=torch.Generator().manual_seed(3)) % 4
    packed = pack_words(q, scale, zero_point, g_idx.int())
    expected = scale.double()[:, g_idx] * (q.double() - zero_point.double()[:, g_idx])
    assert torch.equal(unpack_words_ref(packed), expected)


HALF = torch.ones(3, 2).half()
REFUSED = {
    "unsigned": (dict(q=torch.zeros(3, 256, dtype=torch.uint8)), TypeError, "got q torch.uint8"),
    "integer scale": (dict(scale=torch.ones(3, 2, dtype=torch.int8)), TypeError, "got scale torch.int8"),
    "another N": (dict(scale=torch.ones(4, 2)), ValueError, r"expected \[N, K\] and \[N, G\]"),
    "no groups": (dict(scale=torch.ones(3, 0)), ValueError, r"expected \[N, K\] and \[N, G\]"),
    "zero points": (dict(zero_point=torch.zeros(3, 1, dtype=torch.int8)), ValueError, "expected one shape"),
    "five bits": (dict(q=torch.full((3, 256), 8, dtype=torch.int8)), ValueError, r"got q in \[8, 8\]"),
    "three bits": (dict(bits=3), NotImplementedError, r"got 3 bits, expected one of \(4, 8\)"),
    "groups of 16": (dict(scale=torch.ones(3, 16)), NotImplementedError, r"expected groups of \(32, 64, 128\)"),
    "part of a group": (dict(q=codes(3, 255)), NotImplementedError, "got 2 groups of 255 features"),
    "g_idx of another K": (dict(g_idx=torch.zeros(255).int()), ValueError, r"got g_idx \[255\], expected \[256\]"),
    "uneven groups": (dict(g_idx=torch.zeros(256).int()), ValueError, "expected 128 features in every group"),
}


@pytest.mark.parametrize("change, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_codes_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        pack_words(**dict(q=codes(3, 256), scale=HALF) | change)
