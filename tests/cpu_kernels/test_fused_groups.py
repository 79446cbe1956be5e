"""A group of products with the steps around it against the chain of single calls, bit for bit."""

import numpy as np
import pytest
from support.close import assert_close
from support.random_linear import random_qtensor
from support.threads import assert_threads_change_nothing

import cpu_kernels
from cpu_kernels import LinearGroup, PackedLinear, feed_forward, rms_norm, silu_mul

EPS = 1e-5
GROUPS = {
    "one": ("q8_0",),
    "alike": ("q4_0", "q4_0", "q4_0"),
    "mixed, one input": ("q4_k", "q4_k", "q6_k"),
    "mixed, three inputs": ("w8a8", "bf16", "w4g128-asym"),
}
TOKENS = (1, 3, 5, 63)


def pack(format_name: str, num_rows: int, row_size: int, seed: int = 0) -> PackedLinear:
    qtensor = random_qtensor(format_name, num_rows, row_size, seed=seed)
    return PackedLinear(qtensor.format, qtensor.parts, qtensor.shape)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


@pytest.fixture(params=["scalar", "avx2", "avx_vnni", "avx512", "avx512_vnni"])
def level(request, monkeypatch) -> str:
    """Nothing above this instruction set."""
    if request.param not in cpu_kernels.features():
        pytest.skip(f"this machine has no {request.param}")
    monkeypatch.setenv("QBENCH_ISA", request.param)
    return request.param


# ---- groups


@pytest.mark.parametrize("formats", GROUPS.values(), ids=GROUPS)
def test_a_group_is_its_parts(level, formats):
    linears = [pack(name, 17 + 16 * i, 256, seed=i) for i, name in enumerate(formats)]
    biases = [random(linear.shape[0]) if i == 1 else None for i, linear in enumerate(linears)]
    group = LinearGroup(linears, biases)
    weight = random(256, seed=2)
    for num_tokens in TOKENS:
        x = random(num_tokens, 256, seed=3)
        for norm in (None, weight):
            rows = x if norm is None else rms_norm(x, weight, EPS)
            for linear, bias, y in zip(linears, biases, group.multiply(x, norm, EPS), strict=True):
                alone = linear.matmul(rows)
                assert_close(y, alone if bias is None else alone + bias)
        assert group.last_isas == [linear.choice(num_tokens)[0] for linear in linears]


@pytest.mark.parametrize("num_tokens", TOKENS, ids="M={}".format)
@pytest.mark.parametrize("has_bias", [False, True], ids=["no bias", "bias"])
def test_a_residual_is_added_to_the_product(num_tokens, has_bias):
    linear = pack("q4_k", 131, 256)
    bias = random(131) if has_bias else None
    x, residual = random(num_tokens, 256), random(num_tokens, 131)
    (y,) = LinearGroup([linear], [bias]).multiply(x, residual=residual)
    alone = linear.matmul(x)
    assert_close(y, (alone if bias is None else alone + bias) + residual)


def test_columns_of_a_wider_matrix():
    linear = pack("q8_0", 16, 64)
    wide, residual = random(5, 200), random(5, 40)
    (y,) = LinearGroup([linear], [None]).multiply(wide[:, 70:134], residual=residual[:, 3:19])
    assert_close(y, linear.matmul(wide[:, 70:134].copy()) + residual[:, 3:19])


def test_nan_stays_with_its_token():
    group = LinearGroup([pack("q8_0", 16, 64)], [None])
    x = random(4, 64)
    x[2, 17] = np.nan
    (y,) = group.multiply(x, np.ones(64, np.float32), EPS)
    assert np.isnan(y[2]).all() and np.isfinite(np.delete(y, 2, axis=0)).all()


# ---- feed-forward nets


@pytest.mark.parametrize("num_tokens", [*TOKENS, 515], ids="M={}".format)  # 512 tokens per round
@pytest.mark.parametrize("has_norm", [False, True], ids=["plain", "normed"])
@pytest.mark.parametrize("has_residual", [False, True], ids=["alone", "added"])
def test_feed_forward_is_its_chain(num_tokens, has_norm, has_residual):
    gate, up, down = pack("q4_k", 256, 256), pack("q4_k", 256, 256, seed=1), pack("q6_k", 31, 256, seed=2)
    bias, weight = random(31), random(256, seed=1)
    x, residual = random(num_tokens, 256), random(num_tokens, 31)
    y = feed_forward(
        LinearGroup([gate, up], [None, None]),
        LinearGroup([down], [bias]),
        x,
        weight if has_norm else None,
        EPS,
        residual if has_residual else None,
    )
    rows = rms_norm(x, weight, EPS) if has_norm else x
    # 512 tokens at a time, on the path of all together: the last few alone would be multiplied as stored
    wide, narrow = gate.choice(num_tokens)[1], down.choice(num_tokens)[1]
    parts = [rows[first : first + 512] for first in range(0, num_tokens, 512)]
    inner = [silu_mul(gate.matmul(part, path=wide), up.matmul(part, path=wide)) for part in parts]
    expected = np.concatenate([down.matmul(part, path=narrow) for part in inner])
    expected += bias
    assert_close(y, expected + residual if has_residual else expected)


def test_a_scale_that_all_tokens_share_is_that_of_the_whole_call():
    """The largest input is the last token's, in the second round of 512."""
    gate, up, down = (pack("w8a8-atensor", 64, 64, seed=seed) for seed in range(3))
    x = random(700, 64) * np.linspace(0.1, 3, 700, dtype=np.float32)[:, None]
    y = feed_forward(LinearGroup([gate, up], [None, None]), LinearGroup([down], [None]), x)
    assert_close(y, down.matmul(silu_mul(gate.matmul(x), up.matmul(x))))


def test_feed_forward_at_every_level(level):
    gate, up, down = (pack("q8_0", 64, 64, seed=seed) for seed in range(3))
    x = random(7, 64)
    y = feed_forward(LinearGroup([gate, up], [None, None]), LinearGroup([down], [None]), x)
    assert_close(y, down.matmul(silu_mul(gate.matmul(x), up.matmul(x))))


def test_results_do_not_depend_on_threads():
    groups = (
        LinearGroup([pack("q4_0", 512, 256, seed=seed) for seed in (0, 1)], [None, None]),
        LinearGroup([pack("q4_0", 256, 512, seed=2)], [None]),
    )
    x, weight = random(67, 256), random(256)
    assert_threads_change_nothing((1, 2, 3, 7), lambda: feed_forward(*groups, x, weight, EPS, x))


def test_no_tokens():
    group = LinearGroup([pack("q8_0", 16, 64), pack("q8_0", 16, 64)], [None, None])
    assert [y.shape for y in group.multiply(np.zeros((0, 64), np.float32))] == [(0, 16), (0, 16)]
    down = LinearGroup([pack("q8_0", 3, 32)], [None])
    both = LinearGroup([pack("q8_0", 32, 64), pack("q8_0", 32, 64)], [None, None])
    assert feed_forward(both, down, np.zeros((0, 64), np.float32)).shape == (0, 3)


# ---- errors


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda g, x: LinearGroup([], []), ValueError, "linears: got none"),
        (lambda g, x: LinearGroup([None], [None]), TypeError, "PackedLinear"),
        (lambda g, x: LinearGroup([pack("q8_0", 16, 64)], []), ValueError, "biases: got 0, expected one or None"),
        (lambda g, x: LinearGroup([pack("q8_0", 16, 64)], [x[0, :3]]), ValueError, "biases: got 3 values, expected 16"),
        (
            lambda g, x: LinearGroup([pack("q8_0", 16, 64), pack("q8_0", 16, 32)], [None, None]),
            ValueError,
            "rows of 64 and of 32",
        ),
        (lambda g, x: g.multiply(x[:, :32]), ValueError, "expected 64 columns"),
        (lambda g, x: g.multiply(x.astype(np.float64)), TypeError, "x: got float64"),
        (lambda g, x: g.multiply(x.T.copy().T), ValueError, "stride .* within a row"),
        (lambda g, x: g.multiply(x, x[0, :3], EPS), ValueError, r"norm_weight: got float32 \[3\], expected"),
        (
            lambda g, x: g.multiply(x, residual=x),
            ValueError,
            r"residual: got float32 \[3, 64\], expected float32 \[3, 16\]",
        ),
        (
            lambda g, x: LinearGroup([pack("q8_0", 64, 64)] * 2, [None] * 2).multiply(x, residual=x),
            ValueError,
            "residual: got one for 2 linears",
        ),
        (lambda g, x: feed_forward(g, g, x), ValueError, "got groups of 1 and 1 linears, expected 2 and 1"),
        (
            lambda g, x: feed_forward(LinearGroup([pack("q8_0", 32, 64)] * 2, [None] * 2), g, x),
            ValueError,
            "gate has 32 rows, up 32, expected 64 as down reads them",
        ),
    ],
    ids=[
        "no linears",
        "None",
        "biases",
        "short bias",
        "two inputs",
        "columns",
        "dtype",
        "stride",
        "short norm",
        "residual",
        "residual of two",
        "groups",
        "inner rows",
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call(LinearGroup([pack("q8_0", 16, 64)], [None]), np.ones((3, 64), np.float32))
