"""Rows of latents in bytes: by hand, and against the codecs of keys and values."""

import pytest
import torch
from support.close import assert_close

from quant.kv import KV_FORMATS
from quant.kv.latent_codes import LATENT_CODES


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_int8_by_hand():
    latent, key = torch.zeros(128), torch.zeros(16)
    latent[0], latent[1], latent[64] = 255.0, 51.0, 1.0
    key[15] = 1.5
    data = LATENT_CODES["int8"].encode(latent, key)
    assert data.shape == (128 + 2 * 4 + 32,)
    assert data[[0, 1, 2, 64]].tolist() == [255, 51, 0, 255]
    assert data[128:132].tolist() == [0x00, 0x3C, 0x00, 0x00]  # float16 scale 1, minimum 0
    assert data[-2:].tolist() == [0xC0, 0x3F]  # bfloat16 1.5, little endian


def test_int4_by_hand():
    latent = torch.zeros(64)
    latent[0], latent[1], latent[16], latent[31], latent[33] = 15.0, 3.0, 7.0, 9.0, -15.0
    data = LATENT_CODES["int4"].encode(latent, torch.zeros(16))
    assert data.shape == (32 + 2 * 4 + 32,)
    assert data[[0, 1, 15]].tolist() == [0x7F, 0x03, 0x90]  # the second half of a group in high nibbles
    assert data[[16, 17]].tolist() == [0xFF, 0xF0]  # of -15 .. 0, where 0 is code 15
    assert data[32:40].tolist() == [0x00, 0x3C, 0x00, 0x00, 0x00, 0x3C, 0x80, 0xCB]  # 1, 0 and 1, -15


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_integers_match_the_codec_of_keys(name):
    codes, latent, key = LATENT_CODES[name], drawn(3, 5, 192), drawn(3, 5, 32)
    got, got_key = codes.decode(codes.encode(latent, key), 192)
    groups = latent.unflatten(-1, (-1, codes.group)).movedim(2, 1)  # as many heads of one group each
    expected = KV_FORMATS[f"kv-{name}"].keys.round_trip(groups).movedim(1, 2).flatten(-2)
    assert_close(got, expected)
    assert torch.equal(got_key, key.bfloat16().float())


@pytest.mark.parametrize("name, row_bytes", [("fp8", 656), ("int8", 672), ("int4", 448)])
def test_bytes_of_deepseeks_sizes(name, row_bytes):
    codes = LATENT_CODES[name]
    assert codes.row_bytes(512, 64) == row_bytes == codes.encode(drawn(512), drawn(64)).numel()


@pytest.mark.parametrize("name", LATENT_CODES)
def test_errors_are_within_half_a_step(name):
    codes, latent = LATENT_CODES[name], drawn(7, 256)
    got, _ = codes.decode(codes.encode(latent, drawn(7, 32)), 256)
    groups = latent.unflatten(-1, (-1, codes.group))
    # For integers half of one step of the span, and of a float16 scale and minimum; for e4m3 half of the last of 3
    # bits.
    span = groups.amax(-1) - groups.amin(-1)
    step = groups.abs().amax(-1) * 2.0**-4 if name == "fp8" else span * (0.5 / (2**codes.bits - 1) + 2.0**-10)
    assert ((got - latent).unflatten(-1, (-1, codes.group)).abs().amax(-1) <= step).all()
