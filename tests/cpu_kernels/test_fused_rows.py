"""RMSNorm and SiLU x up against their definitions bit for bit, and the definitions against torch."""

import numpy as np
import pytest
import torch
from support.close import assert_close
from support.threads import with_threads

from cpu_kernels.fused import exponential_ref, rms_norm, rms_norm_ref, rms_norm_rows, silu_mul_ref, silu_mul_rows

OP = "fused_rows"
SIZES = (1, 3, 15, 63, 64, 65, 131, 2048)
EPS = 1e-5


def random(shape, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def poisoned(shape) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


def same_bits(got: np.ndarray, expected: np.ndarray) -> bool:
    """NaN has many bit patterns, all of them one value; zeros have two, which differ."""
    nan = np.isnan(expected)
    return np.array_equal(np.isnan(got), nan) and np.array_equal(
        got.view(np.int32)[~nan], expected.view(np.int32)[~nan]
    )


# ---- kernels against the definition


@pytest.mark.parametrize("size", SIZES, ids="K={}".format)
def test_rms_norm_is_the_definition(isa, size):
    for num_tokens in (1, 3, 33):
        x, weight = random((num_tokens, size), size), random(size, 1)
        got, ran = rms_norm_rows(x, weight, EPS, isa, poisoned(x.shape))
        assert ran == isa
        assert same_bits(got, rms_norm_ref(x, weight, EPS))


@pytest.mark.parametrize("size", SIZES, ids="K={}".format)
def test_silu_mul_is_the_definition(isa, size):
    for num_tokens in (1, 3, 33):
        gate, up = random((num_tokens, size), size, 5), random((num_tokens, size), 1)
        got, ran = silu_mul_rows(gate, up, isa, poisoned(gate.shape))
        assert ran == isa
        assert same_bits(got, silu_mul_ref(gate, up))


def test_every_size_of_argument(isa):
    """Each float with 4 bits of mantissa, of both signs: overflow, underflow, denormals, infinities, NaN."""
    gate = (np.arange(2**13, dtype=np.uint32) << 19).view(np.float32)[None]
    for up in (np.ones_like(gate), gate):
        assert same_bits(silu_mul_rows(gate, up, isa)[0], silu_mul_ref(gate, up))
    columns = gate.reshape(-1, 4)
    weight = np.ones(4, np.float32)
    assert same_bits(rms_norm_rows(columns, weight, EPS, isa)[0], rms_norm_ref(columns, weight, EPS))


def test_in_place(isa):
    x, weight = random((5, 131)), random(131, 1)
    expected = rms_norm_ref(x, weight, EPS)
    inside = x.copy()
    assert rms_norm_rows(inside, weight, EPS, isa, inside)[0] is inside
    assert same_bits(inside, expected)
    for into in (0, 1):
        both = [x.copy(), x[::-1].copy()]
        expected = silu_mul_ref(*both)
        silu_mul_rows(*both, isa, both[into])
        assert same_bits(both[into], expected)


def test_columns_of_a_wider_matrix(isa):
    wide, weight = random((5, 300)), random(131, 1)
    gate, up = wide[:, :131], wide[:, 169:]
    assert same_bits(rms_norm_rows(gate, weight, EPS, isa)[0], rms_norm_ref(gate.copy(), weight, EPS))
    assert same_bits(silu_mul_rows(gate, up, isa)[0], silu_mul_ref(gate.copy(), up.copy()))


@pytest.mark.parametrize("shape", [(0, 64), (3, 0), (0, 0)], ids=["no tokens", "no columns", "neither"])
def test_empty_rows_give_empty_results(isa, shape):
    x = np.zeros(shape, np.float32)
    assert rms_norm_rows(x, np.ones(shape[1], np.float32), EPS, isa)[0].shape == shape
    assert silu_mul_rows(x, x, isa)[0].shape == shape


# ---- the definition against torch


def test_exponential_is_within_two_roundings():
    """Series, its last product and the two of 2^n: 1.5 ulp plus the 1/4 that the series leaves out."""
    t = np.linspace(-87, 88, 200_001, dtype=np.float32)
    expected = np.exp(t.astype(np.float64))
    assert_close(exponential_ref(t) / expected, np.ones_like(expected), atol=2 * 2**-23)


@pytest.mark.parametrize("size", SIZES, ids="K={}".format)
def test_rms_norm_is_that_of_torch(size):
    """Roundings of K / 64 + 6 additions at most, halved by the root, and 5 more; torch's own have the same bound."""
    x, weight = random((7, size), size), random(size, 1)
    wide = torch.from_numpy(x).double()
    expected = torch.nn.functional.rms_norm(wide, (size,), torch.from_numpy(weight).double(), EPS)
    assert_close(rms_norm_ref(x, weight, EPS), expected, rtol=((size / 64 + 6) / 2 + 5) * 2**-24)


def test_silu_mul_is_that_of_torch():
    gate, up = random((3, 4096), 0, 8), random((3, 4096), 1)
    expected = torch.nn.functional.silu(torch.from_numpy(gate).double()) * torch.from_numpy(up).double()
    assert_close(silu_mul_ref(gate, up), expected, rtol=6 * 2**-23)  # e^t 2 ulp; a sum, a division, a product


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -200.0, 200.0], ids=str)
def test_special_values_match_torch(value):
    gate = np.full((1, 3), value, np.float32)
    up = np.array([[1.0, -2.0, 0.0]], np.float32)
    expected = torch.nn.functional.silu(torch.from_numpy(gate)) * torch.from_numpy(up)
    assert_close(silu_mul_ref(gate, up), expected)
    x = np.array([[1.0, value, 0.5]], np.float32)
    if not np.isfinite(value):
        expected = torch.nn.functional.rms_norm(torch.from_numpy(x), (3,), torch.ones(3), EPS)
        assert_close(rms_norm_ref(x, np.ones(3, np.float32), EPS), expected)


# ---- threads and errors


def test_results_do_not_depend_on_threads_or_batch():
    x, weight = random((67, 1031)), random(1031, 1)
    alone = np.concatenate([rms_norm(row[None], weight, EPS) for row in x])
    assert all(same_bits(got, alone) for got in with_threads((1, 2, 5), lambda: rms_norm(x, weight, EPS)))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x: rms_norm(x.astype(np.float64), x[0], EPS), TypeError, "x: got float64"),
        (lambda x: rms_norm(x[0], x[0], EPS), ValueError, r"x: got float32 \[4\], expected float32 \[M, K\]"),
        (lambda x: rms_norm(x.T, x[:, 0], EPS), ValueError, "contiguous"),
        (lambda x: rms_norm(x, x[0, :3], EPS), ValueError, r"weight: got float32 \[3\], expected float32 \[4\]"),
        (lambda x: rms_norm(x, x, EPS), ValueError, r"weight: got float32 \[3, 4\]"),
        (lambda x: rms_norm(x, x[0], EPS, out=x[:2]), ValueError, r"out: got float32 \[2, 4\]"),
        (lambda x: rms_norm(x, x[0], EPS, isa="sse9"), RuntimeError, "isa=sse9: unknown instruction set"),
        (lambda x: silu_mul_rows(x, x[:2].copy()), ValueError, "up: got .*, expected the shape of gate"),
        (lambda x: silu_mul_rows(x, x.astype(np.int32)), TypeError, "up: got int32"),
    ],
    ids=["dtype", "one axis", "transposed", "short weight", "weight matrix", "out", "isa", "up shape", "up dtype"],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call(np.ones((3, 4), np.float32))
