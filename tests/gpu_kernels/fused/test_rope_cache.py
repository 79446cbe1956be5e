"""The oracle, and refusals; proof/test_check.py holds the kernel against the oracle over its problems."""

import dataclasses
import math

import pytest
import torch
from support.close import assert_close
from support.refused_operands import assert_refused

from gpu_kernels.fused import rope_cache_problems
from gpu_kernels.fused.rope import rotate_ref, rotation_error
from gpu_kernels.fused.rope_cache import Operands, rope_cache
from gpu_kernels.fused.rope_cache_problems import ODD, SENTINEL, all_written
from gpu_kernels.proof.problems import problems_of
from qbench.runtime.attention.rope import rotate, rotation
from quant.kv.fp8 import Fp8
from quant.kv.ints import IntGroups

REFERENCE = {str(sizes): sizes for sizes in ODD}


def make(**changes):
    """T=3 H=4 G=2 D=24 E=8 R=6, float16."""
    sizes = dataclasses.replace(ODD[3], interleaved=False, **changes)
    return rope_cache_problems._operands(sizes, "cpu")


@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "interleaved"])
def test_ref_equals_textbook_loop(interleaved):
    x = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(0))
    angles = torch.tensor([[0.1, 2.0], [-1.0, 0.5], [3.0, 0.25]])
    positions = torch.tensor([2, 1])
    turned = rotate_ref(x, positions, angles.cos(), angles.sin(), interleaved)
    for t in range(2):
        for h in range(3):
            row = x[t, h].tolist()
            expected = list(row)
            for i in range(2):
                first, second = (2 * i, 2 * i + 1) if interleaved else (i, i + 2)
                c, s = angles.cos()[positions[t], i].item(), angles.sin()[positions[t], i].item()
                expected[first] = row[first] * c - row[second] * s
                expected[second] = row[second] * c + row[first] * s
            assert_close(turned[t, h], expected, rtol=4 * 2**-53, atol=4 * 2**-53)
            assert math.dist(turned[t, h], [0] * 6) == pytest.approx(math.dist(row, [0] * 6))


def test_ref_is_the_runtimes():
    """The runtime's own rotation, which is held to others' models, in float32."""
    cos, sin = rotation(10000.0 ** -(torch.arange(0, 8, 2) / 8), torch.arange(5))
    x = torch.randn(1, 3, 5, 12, generator=torch.Generator().manual_seed(0))  # [B, H, T, D]
    theirs = rotate(x, cos, sin)[0].transpose(0, 1)
    mine = x[0].transpose(0, 1)
    turned = rotate_ref(mine, torch.arange(5), cos[:, :4], sin[:, 4:], False)
    error = rotation_error(mine, torch.arange(5), cos[:, :4], sin[:, 4:], False)
    assert bool(((turned - theirs).abs() <= error + 2**-24 * turned.abs()).all())


@pytest.mark.parametrize("label", REFERENCE)
def test_reference_entry(label):
    """The table's other entry equals the problem's oracle."""
    problem = next(problem for problem in problems_of("rope_cache") if problem.label == label)
    operands = problem.operands("cpu")
    interleaved = REFERENCE[label].interleaved
    given = Operands(**operands, interleaved=interleaved)
    result = all_written(given, rope_cache(given, impl="reference"))
    assert problem.agrees(result, problem.op.reference(**problem.operands("cpu")))


def test_strided_pages_and_padding(run):
    """Neighbouring caches in one buffer; all tokens except one are padding."""
    operands = make()
    both = torch.full((2, 16, 2, 24 + 8), SENTINEL, dtype=torch.float16, device=run.device)
    operands = {name: None if value is None else value.to(run.device) for name, value in operands.items()}
    operands |= {"key_cache": both[..., :24], "value_cache": both[..., 24:]}
    operands["slots"] = torch.tensor([-1, 31, -1], device=run.device)
    run(rope_cache, Operands(**operands), impl="triton")
    assert torch.equal(both[1, 15, :, 24:], operands["value"][1])
    both[1, 15] = SENTINEL
    assert (both == SENTINEL).all()


def test_nan_stays_nan_in_fp8(run):
    operands = make(fp8=True, T=1)
    operands = {name: value.to(run.device) for name, value in operands.items()} | {
        "slots": torch.tensor([0], device=run.device)
    }
    operands["value"][0, 0, 3], operands["value"][0, 1, 4] = torch.nan, torch.inf
    run(rope_cache, Operands(**operands), impl="triton")
    codes = operands["value_cache"][0, 0].float()
    assert codes.isnan().sum() == 1 and codes[0, 3].isnan() and codes[1, 4] == 448


def test_scales_per_token_match_the_runtime_format(run):
    """The first head has a NaN: all of it is NaN, and no other."""
    operands = {name: value.to(run.device) for name, value in make(fp8=True, scales=0, T=1).items()}
    operands |= {"slots": torch.tensor([0], device=run.device)}
    operands["value"][0, 0, 3] = torch.nan
    run(rope_cache, Operands(**operands), impl="triton")
    codec = Fp8("float8_e4m3fn", per="head")
    expected = codec.decode(codec.encode(operands["value"].float().cpu().transpose(0, 1)[None]))[0, :, 0]
    got = operands["value_cache"][0, 0].float() * operands["value_scale"][0, 0, :, None]
    assert torch.equal(got[1:].cpu(), expected[1:]) and got[0].isnan().all() and expected[0].isnan().all()


def test_int8_codes_match_the_runtime_format(run):
    """Equal bits of codes, scales and minima, of infinities too. The first head has a NaN: all of it is NaN."""
    operands = {name: value.to(run.device) for name, value in make(int8=True, T=3, G=17, H=17).items()}
    operands |= {"slots": torch.tensor([0, 1, 2], device=run.device)}
    value = operands["value"]
    value[0, 0, 3], value[0, 1, 4], value[0, 2, 5], value[0, 3, :] = torch.nan, torch.inf, -torch.inf, 0.0
    value[0, 4, :], value[0, 5] = -torch.inf, value[0, 5] * 1e-6
    run(rope_cache, Operands(**operands), impl="triton")
    codec = IntGroups(8)
    parts = codec.encode(value.float().cpu().transpose(0, 1)[None])  # [1, G, T, ...]
    codes, scale = (operands[name][0, :3].transpose(0, 1).cpu() for name in ("value_cache", "value_scale"))
    same = torch.ones(17, 3, dtype=torch.bool)
    same[0, 0] = False
    assert torch.equal((codes.int() + 128)[same], parts["codes"][0].int()[same])
    assert torch.equal(scale[same], torch.cat([parts["scale"], parts["minimum"]], -1)[0][same])
    assert codec.decode(parts)[0, 0, 0].isnan().all() and scale[0, 0].isnan().all()


def test_no_tokens():
    operands = make()
    for name in ("query", "key", "value", "positions", "slots"):
        operands[name] = operands[name][:0]
    assert rope_cache(Operands(**operands)).shape == (0, 4, 24)
    assert (operands["key_cache"] == SENTINEL).all()


REFUSED = {
    "float64": (lambda o: dict(query=o["query"].double()), TypeError, "got query torch.float64"),
    "float positions": (lambda o: dict(positions=o["positions"].float()), TypeError, "got positions torch.float32"),
    "half cos": (lambda o: dict(cos=o["cos"].half()), TypeError, "got cos torch.float16"),
    "slots of another T": (lambda o: dict(slots=o["slots"][:2]), ValueError, r"got slots \[2\], expected \[3\]"),
    "slots of other heads": (
        lambda o: dict(slots=o["slots"][:, None].expand(3, 3)),
        ValueError,
        r"got slots \[3, 3\], expected \[3\]",
    ),
    "key of another D": (lambda o: dict(key=o["key"][..., :23]), ValueError, r"expected \[T, H, D\], \[T, G, D\] and"),
    "wide cos": (
        lambda o: dict(cos=torch.zeros(6, 13), sin=torch.zeros(6, 13)),
        ValueError,
        r"got cos \[6, 13\], expected at most D / 2 = 12 columns",
    ),
    "cache of another type": (
        lambda o: dict(key_cache=o["key_cache"].float()),
        TypeError,
        "got key_cache torch.float32",
    ),
    "cache of other heads": (lambda o: dict(value_cache=o["value_cache"][:, :, :1]), ValueError, "got value_cache"),
    "strided features": (lambda o: dict(value=o["value"].mT.contiguous().mT), ValueError, "expected 1 in the end"),
    "scale without FP8": (lambda o: dict(key_scale=torch.ones(1)), ValueError, "expected one for codes alone"),
    "two devices": (lambda o: dict(value=o["value"].to("meta")), ValueError, "got value on meta, expected cpu"),
}


@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED.keys())
def test_bad_operands_are_refused(row):
    assert_refused(lambda **operands: rope_cache(Operands(**operands)), make(), row)


def test_refused_scales_and_sizes():
    operands = make(fp8=True)
    with pytest.raises(ValueError, match=r"got key_scale torch.float32 \[3\], expected float32 \[1\] or \[2\]"):
        rope_cache(Operands(**operands | {"key_scale": torch.ones(3)}))
    with pytest.raises(ValueError, match=r"got key_scale torch.float32 \[1\], expected float16 \[2, 16, 2, 2\], dense"):
        rope_cache(Operands(**make(int8=True) | {"key_scale": torch.ones(1)}))
    with pytest.raises(NotImplementedError, match="got heads of 514 and 8, expected up to 512"):
        rope_cache(Operands(**make(D=514)))
