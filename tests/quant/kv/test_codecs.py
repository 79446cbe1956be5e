"""KV codecs against torch's own casts, textbook loops and bytes written by hand."""

import pytest
import torch
from support.close import assert_close

from quant.errors import InputError
from quant.kv import KV_FORMATS, get_kv_format
from quant.kv.floats import Floats
from quant.kv.fp8 import Fp8
from quant.kv.ints import IntChannels, IntGroups, pack, unpack
from quant.kv.mla_latent import decode_latent, encode_latent

B, G, T, D = 2, 3, 64, 32
CODECS = {f"{name}.{side}": getattr(fmt, side) for name, fmt in KV_FORMATS.items() for side in ("keys", "values")}


def make_vectors(seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(B, G, T, D, generator=generator)
    x[..., 5] *= 20  # the channel of large magnitude that keys have
    return x


def scale_for(codec, x):
    return codec.scale_of(x).amax(dim=(0, 2)).reshape(-1) if codec.calibrated else None


@pytest.mark.parametrize("name", CODECS)
def test_parts_take_the_stated_bytes(name):
    codec, x = CODECS[name], make_vectors()
    parts = codec.encode(x, scale_for(codec, x))
    assert sum(part.nbytes for part in parts.values()) == B * T * codec.bytes_per_token(G, D)


@pytest.mark.parametrize("name", CODECS)
def test_round_trip_is_within_half_a_step(name):
    codec, x = CODECS[name], make_vectors()
    got = codec.round_trip(x, scale_for(codec, x))
    if isinstance(codec, Fp8):
        mantissa_bits = 3 if codec.dtype is torch.float8_e4m3fn else 2
        subnormal = 2.0 ** (-6 - mantissa_bits if mantissa_bits == 3 else -14 - mantissa_bits)
        scale = scale_for(codec, x).view(1, -1, 1, 1) if codec.calibrated else codec.scale_of(x)
        bound = torch.maximum(x.abs() * 2.0 ** -(mantissa_bits + 1), subnormal / 2 * scale)
    elif isinstance(codec, Floats):
        assert torch.equal(got, x.to(codec.dtype).float())
        bound = torch.maximum(x.abs() * torch.finfo(codec.dtype).eps / 2, torch.tensor(2.0**-25))
    else:
        parts = codec.encode(x)
        scale = parts["scale"].float()
        step = (
            scale.repeat_interleave(32, dim=2)
            if isinstance(codec, IntChannels)
            else scale.repeat_interleave(D // scale.shape[-1], dim=-1)
        )
        bound = step / 2 + 255 * step * 2.0**-11  # the span is rounded to float16, once, by half a unit of 11 bits
    assert ((got - x).abs() <= bound * (1 + 1e-5)).all()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=["e4m3", "e5m2"])
def test_fp8_codes_are_torchs_casts(dtype):
    codec = Fp8(str(dtype).removeprefix("torch."), per="head", calibrated=True)
    every = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    finite = every[every.isfinite()].repeat(2)[: 7 * D].reshape(1, 1, 7, D)
    one = torch.ones(1)
    assert torch.equal(codec.encode(finite, one)["codes"].float(), finite)
    x = make_vectors()
    assert torch.equal(codec.encode(x, one)["codes"].view(torch.uint8), x.to(dtype).view(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=["e4m3", "e5m2"])
def test_fp8_saturates_and_keeps_nan(dtype):
    codec = Fp8(str(dtype).removeprefix("torch."), per="tensor", calibrated=True)
    x = torch.tensor([1e9, -1e9, float("inf"), float("nan"), 0.0, 2.0**-40]).reshape(1, 1, 1, 6)
    got = codec.round_trip(x, torch.ones(1)).flatten()
    top = torch.finfo(dtype).max
    assert got[:3].tolist() == [top, -top, top]
    assert got[3].isnan() and got[4:].tolist() == [0, 0]


def test_fp8_scale_of_a_token_by_hand():
    x = torch.zeros(1, 2, 1, 4)
    x[0, 0, 0, 1], x[0, 1, 0, 2] = -4.48, 0.448
    assert_close(Fp8("float8_e4m3fn", per="head").encode(x)["scale"].flatten(), torch.tensor([0.01, 0.001]))
    assert_close(Fp8("float8_e4m3fn", per="tensor").encode(x)["scale"].flatten(), torch.tensor([0.01]))


@pytest.mark.parametrize("codec", [IntGroups(8), IntGroups(4, group=8), IntGroups(4), IntGroups(2, group=8)], ids=str)
def test_groups_of_channels_against_a_loop(codec):
    x = make_vectors()[:1, :1, :3]
    got = codec.round_trip(x)
    size = codec.group or D
    for token in range(3):
        for start in range(0, D, size):
            group = x[0, 0, token, start : start + size]
            minimum = group.min().half().float()
            step = ((group.max() - minimum) / (2**codec.bits - 1)).half().float()
            expected = torch.round((group - minimum) / step).clamp(0, 2**codec.bits - 1) * step + minimum
            assert torch.equal(got[0, 0, token, start : start + size], expected)


@pytest.mark.parametrize("bits", [2, 4])
def test_groups_of_tokens_are_groups_of_channels_turned_round(bits):
    x = make_vectors()
    turned = x.unflatten(2, (2, 32)).transpose(3, 4).flatten(1, 2)  # [B, G 2, D, 32]: tokens in place of channels
    expected = IntGroups(bits).round_trip(turned).unflatten(1, (G, 2)).transpose(3, 4).flatten(2, 3)
    assert torch.equal(IntChannels(bits).round_trip(x), expected)


def test_keys_per_channel_follow_a_large_channel():
    x = make_vectors()
    others = torch.arange(D) != 5
    error = {c: (c.round_trip(x) - x)[..., others].square().mean() for c in (IntChannels(4), IntGroups(4))}
    assert error[IntChannels(4)] < error[IntGroups(4)] / 3


def test_tokens_behind_the_last_group_stay():
    x = make_vectors()[:, :, :45]
    got = IntChannels(4).round_trip(x)
    assert torch.equal(got[:, :, 32:], x[:, :, 32:]) and not torch.equal(got[:, :, :32], x[:, :, :32])
    assert torch.equal(IntChannels(4).round_trip(x[:, :, :31]), x[:, :, :31])


def test_constant_vectors_come_back():
    for value in (0.0, -3.5, 1024.0):
        x = torch.full((1, 1, 32, D), value)
        for codec in (IntGroups(8), IntGroups(4, group=32), IntChannels(4), Fp8("float8_e4m3fn", per="head")):
            assert_close(codec.round_trip(x), x, rtol=2.0**-10)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_rounded_up_minimum_is_above_the_smallest_value(bits):
    """In float16, 1000.3 is 1000.5: codes below 0 become 0 and do not wrap around."""
    x = torch.tensor([1000.3, 1000.9, 1001.5, 1002.3]).view(1, 1, 1, 4)
    codec = IntGroups(bits)
    assert codec.encode(x)["minimum"].item() == 1000.5
    assert ((codec.round_trip(x) - x).abs() <= 0.25 + (1002.3 - 1000.5) / (2**bits - 1)).all()


def test_codes_of_two_bits_by_hand():
    codes = torch.tensor([1, 2, 3, 0, 0, 0, 0, 3], dtype=torch.uint8)
    assert pack(codes, 2).tolist() == [0b00_11_10_01, 0b11_00_00_00]
    assert torch.equal(unpack(pack(codes, 2), 2), codes)


def test_nibbles_by_hand():
    codes = torch.tensor([1, 2, 15, 0], dtype=torch.uint8)
    assert pack(codes, 4).tolist() == [0x21, 0x0F]
    assert torch.equal(unpack(pack(codes, 4), 4), codes)


def test_a_head_that_groups_do_not_divide():
    with pytest.raises(InputError, match="groups of 32 channels do not divide a head of 48"):
        KV_FORMATS["kv-int4"].check(48)
    KV_FORMATS["kv-int8"].check(48)


def test_unknown_name_lists_the_known():
    with pytest.raises(InputError, match="unknown KV format 'kv-fp4'; known are kv-fp8"):
        get_kv_format("kv-fp4")


def test_latent_bytes_by_hand():
    latent, key = torch.zeros(512), torch.zeros(64)
    latent[0], latent[1], latent[128], key[63] = 448.0, -224.0, 1.0, 1.5
    data = encode_latent(latent, key)
    assert data.shape == (656,)
    assert data[[0, 1, 128]].tolist() == [0x7E, 0xF6, 0x7E]  # 448, -224, and the largest of its group
    scales = data[512:528].view(torch.float32)
    assert scales[0] == 1 and scales[1] == torch.tensor(1 / 448)
    assert data[654:].tolist() == [0xC0, 0x3F]  # bfloat16 1.5, little endian


def test_latent_against_the_definition():
    generator = torch.Generator().manual_seed(3)
    latent, key = torch.randn(5, 2, 512, generator=generator), torch.randn(5, 2, 64, generator=generator)
    got, got_key = decode_latent(encode_latent(latent, key))
    for group in latent.split(128, dim=-1):
        assert (group.abs().amax(-1) > 0).all()
    expected = torch.cat(
        [
            (group / (group.abs().amax(-1, keepdim=True) / 448)).to(torch.float8_e4m3fn).float()
            * (group.abs().amax(-1, keepdim=True) / 448)
            for group in latent.split(128, dim=-1)
        ],
        dim=-1,
    )
    assert torch.equal(got, expected)
    assert torch.equal(got_key, key.bfloat16().float())


def test_latent_of_other_shapes():
    with pytest.raises(ValueError, match=r"expected \[\.\.\., 512\]"):
        encode_latent(torch.zeros(2, 500), torch.zeros(2, 64))
    with pytest.raises(ValueError, match="expected uint8"):
        decode_latent(torch.zeros(2, 655, dtype=torch.uint8))
