import gguf
import numpy as np
import pytest
from support.close import assert_close
from support.q8_0 import q8_0_blocks, random_q8_0

import cpu_kernels
from cpu_kernels.linear_q8_0 import linear_q8_0_ref, quantize_activations_ref

GUARD = 32  # floats before and after an output


def identity(size: int) -> np.ndarray:
    """Blocks of the identity matrix: what comes out are the rounded activations themselves."""
    return q8_0_blocks(np.ones((size, size // 32)), np.eye(size).reshape(size, -1, 32))


def rounding_bound(x: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """What float32 may lose against the oracle, per output [M, N].

    Each of the B terms is rounded twice (the product of the scales, then with the integer) and each of the B
    additions once, by at most 2**-24 of a partial sum: (B + 2) * 2**-24 * sum over blocks of |term|.
    """
    num_blocks = x.shape[1] // 32
    terms = [
        np.abs(linear_q8_0_ref(x[:, 32 * b : 32 * b + 32], blocks[:, 34 * b : 34 * b + 34])) for b in range(num_blocks)
    ]
    return (num_blocks + 2) * 2.0**-24 * np.sum(terms, axis=0)


def guarded_output(num_tokens: int, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """An output full of NaN between two guards of NaN: (whole buffer, output [M, N])."""
    buffer = np.full(num_tokens * num_rows + 2 * GUARD, np.nan, np.float32)
    return buffer, buffer[GUARD:-GUARD].reshape(num_tokens, num_rows)


# ---- the oracle


def test_oracle_is_the_textbook_loop():
    num_tokens, num_rows, row_size = 3, 5, 96
    blocks = random_q8_0(num_rows, row_size)
    x = np.random.default_rng(1).standard_normal((num_tokens, row_size)).astype(np.float32)
    expected = np.zeros((num_tokens, num_rows))
    for m in range(num_tokens):
        for n in range(num_rows):
            for b in range(row_size // 32):
                x_block = x[m, 32 * b : 32 * b + 32]
                absmax = np.float32(max(abs(value) for value in x_block))
                stored = blocks[n, 34 * b : 34 * b + 34].tobytes()
                dot = 0
                for k in range(32):
                    w_q = int.from_bytes(stored[2 + k : 3 + k], "little", signed=True)
                    dot += w_q * round(float(x_block[k] * (np.float32(127) / absmax)))
                w_scale = float(np.frombuffer(stored[:2], np.float16)[0])
                expected[m, n] += dot * w_scale * float(absmax / np.float32(127))
    assert_close(linear_q8_0_ref(x, blocks), expected, rtol=2.0**-50)


def test_oracle_reads_the_weights_as_gguf_does():
    rng = np.random.default_rng(2)
    blocks = gguf.quantize(rng.standard_normal((17, 128)).astype(np.float32), gguf.GGMLQuantizationType.Q8_0)
    weight = gguf.dequantize(blocks, gguf.GGMLQuantizationType.Q8_0)
    x = rng.standard_normal((5, 128)).astype(np.float32)
    codes, scale = quantize_activations_ref(x)
    x_rounded = (codes * scale[..., None].astype(np.float64)).reshape(x.shape)
    # gguf rounds scale * code to float32, at most 2**-24 of each of the products summed.
    bound = 2.0**-23 * (np.abs(x_rounded) @ np.abs(weight.astype(np.float64)).T)
    assert_close(linear_q8_0_ref(x, blocks), x_rounded @ weight.astype(np.float64).T, atol=bound)


def test_rounding_an_activation_moves_it_half_a_step_at_most():
    x = np.random.default_rng(3).standard_normal((4, 256)).astype(np.float32)
    codes, scale = quantize_activations_ref(x)
    error = np.abs(codes * scale[..., None] - x.reshape(codes.shape))
    assert (error <= scale[..., None] * (0.5 + 2.0**-15)).all()


# ---- the kernels


@pytest.mark.parametrize("row_size", [32, 64, 96, 4096], ids="K={}".format)
@pytest.mark.parametrize("num_rows", [1, 3, 15, 16, 17, 33, 63, 131], ids="N={}".format)
def test_matches_oracle(isa, matmul, num_rows, row_size):
    blocks = random_q8_0(num_rows, row_size)
    packed = cpu_kernels.PackedQ8_0(blocks)
    x = np.random.default_rng(4).standard_normal((131, row_size)).astype(np.float32)
    expected, bound = linear_q8_0_ref(x, blocks), rounding_bound(x, blocks)
    for num_tokens in (1, 2, 3, 4, 5, 6, 7, 11, 63, 131):
        buffer, out = guarded_output(num_tokens, num_rows)
        assert matmul(packed, x[:num_tokens], isa, out=out) is out
        assert_close(out, expected[:num_tokens], atol=bound[:num_tokens])
        assert np.isnan(buffer[:GUARD]).all() and np.isnan(buffer[-GUARD:]).all()


def test_more_tokens_than_one_chunk(isa, matmul):
    blocks = random_q8_0(17, 64)
    x = np.random.default_rng(5).standard_normal((1031, 64)).astype(np.float32)
    out = matmul(cpu_kernels.PackedQ8_0(blocks), x, isa)
    assert_close(out, linear_q8_0_ref(x, blocks), atol=rounding_bound(x, blocks))


def test_integers_are_exact_at_their_extremes(isa, matmul):
    """Scales of 1 and the largest codes of every sign: no instruction on the way may saturate."""
    rng = np.random.default_rng(6)
    codes = rng.choice([-128, -127, -1, 0, 1, 127], (48, 3, 32))
    codes[0], codes[1], codes[2] = -128, 127, 0
    x = rng.choice([-127, -126, 0, 1, 127], (13, 96)).astype(np.float32)
    x[0], x[1] = 127, -127
    x[:, ::32] = 127  # so that every scale is 1
    expected = x.astype(np.int64) @ codes.reshape(48, 96).T
    assert_close(matmul(cpu_kernels.PackedQ8_0(q8_0_blocks(np.ones((48, 3)), codes)), x, isa), expected)


def test_activations_are_rounded_as_the_oracle_does(isa, matmul):
    rng = np.random.default_rng(7)
    x = rng.standard_normal((40, 64)).astype(np.float32) * np.float32(10.0) ** rng.integers(-30, 30, (40, 1))
    x = x.astype(np.float32)
    x[0, :32] = np.arange(32) - 15.5  # ties, once absmax makes the scale 1
    x[0, 31] = 127
    x[1] = 0
    x[2, :32] = 2.0**-149  # absmax too small for a reciprocal
    x[3, :32] = np.float32(2.0**-119)
    x[4, :32] = np.finfo(np.float32).max
    codes, scale = quantize_activations_ref(x)
    with np.errstate(over="ignore"):
        expected = (codes * scale[..., None]).reshape(x.shape)
    assert_close(matmul(cpu_kernels.PackedQ8_0(identity(64)), x, isa), expected)


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf], ids=["nan", "-nan", "inf", "-inf"])
@pytest.mark.parametrize("place", [0, 37, 63])
def test_nan_and_infinity_reach_every_output_of_their_token_alone(isa, matmul, bad, place):
    packed = cpu_kernels.PackedQ8_0(random_q8_0(19, 64))
    x = np.random.default_rng(8).standard_normal((7, 64)).astype(np.float32)
    clean = matmul(packed, x, isa)
    x[2, place] = bad
    y = matmul(packed, x, isa)
    assert np.isnan(y[2]).all()
    assert_close(np.delete(y, 2, axis=0), np.delete(clean, 2, axis=0))


def test_every_half_precision_scale(isa, matmul):
    scales = np.arange(2**16, dtype=np.uint16).view(np.float16)
    codes = np.zeros((2**16, 1, 32))
    codes[..., 5] = 1
    x = np.zeros((1, 32), np.float32)
    x[0, 5] = 127
    with np.errstate(over="ignore", invalid="ignore"):
        expected = scales.astype(np.float32)[None] * np.float32(127)
    assert_close(matmul(cpu_kernels.PackedQ8_0(q8_0_blocks(scales[:, None], codes)), x, isa), expected)


def test_a_token_does_not_see_its_batch(isa, matmul):
    packed = cpu_kernels.PackedQ8_0(random_q8_0(47, 256))
    x = np.random.default_rng(9).standard_normal((23, 256)).astype(np.float32)
    alone = np.concatenate([matmul(packed, x[m : m + 1], isa) for m in range(len(x))])
    assert_close(matmul(packed, x, isa), alone)


@pytest.mark.parametrize("shape", [(0, 64, 16), (3, 64, 0), (0, 32, 0)], ids=["M=0", "N=0", "M=N=0"])
def test_empty(isa, matmul, shape):
    num_tokens, row_size, num_rows = shape
    packed = cpu_kernels.PackedQ8_0(random_q8_0(num_rows, row_size))
    assert packed.matmul(np.ones((num_tokens, row_size), np.float32), isa=isa).shape == (num_tokens, num_rows)


def test_packed_bytes_are_gguf_bytes():
    packed = cpu_kernels.PackedQ8_0(random_q8_0(48, 128))
    assert packed.shape == (48, 128)
    assert packed.nbytes == 48 * 128 // 32 * 34


def test_torch_tensors_are_taken_in_place():
    torch = pytest.importorskip("torch")
    blocks = random_q8_0(16, 64)
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    out = torch.full((3, 16), torch.nan)
    assert cpu_kernels.PackedQ8_0(torch.from_numpy(blocks)).matmul(x, out=out) is out
    assert_close(out, linear_q8_0_ref(x.numpy(), blocks), atol=rounding_bound(x.numpy(), blocks))


# ---- rows


@pytest.mark.parametrize("num_rows", [1, 15, 16, 17, 63, 131], ids="N={}".format)
def test_rows_are_the_stored_weights(num_rows):
    """The whole range of codes: -128 is one that quantizing never writes, and a file may hold."""
    rng = np.random.default_rng(num_rows)
    blocks = q8_0_blocks(rng.standard_normal((num_rows, 3)), rng.integers(-128, 128, (num_rows, 3, 32)))
    expected = gguf.dequantize(blocks, gguf.GGMLQuantizationType.Q8_0)
    packed = cpu_kernels.PackedQ8_0(blocks)
    for index in (np.arange(num_rows), rng.permutation(num_rows), np.zeros(5, np.int64), np.zeros(0, np.int64)):
        assert_close(packed.rows(index), expected[index])


def test_rows_have_every_half_precision_scale():
    scales = np.arange(2**16, dtype=np.uint16).view(np.float16)
    blocks = q8_0_blocks(scales[:, None], np.tile(np.arange(-16, 16), (2**16, 1, 1)))
    with np.errstate(invalid="ignore"):
        expected = scales.astype(np.float32)[:, None] * np.arange(-16, 16, dtype=np.float32)
    rows = cpu_kernels.PackedQ8_0(blocks).rows(np.arange(2**16))
    assert_close(rows, expected)
    finite = np.isfinite(expected)
    assert_close(np.signbit(rows[finite]), np.signbit(expected[finite]))


# ---- errors


@pytest.mark.parametrize(
    "index, error, message",
    [
        pytest.param(np.array([0, 17]), ValueError, "index: got 17, expected 0 to 16", id="beyond the end"),
        pytest.param(np.array([3, -1]), ValueError, "index: got -1, expected 0 to 16", id="negative"),
        pytest.param(np.zeros(3, np.int32), TypeError, r"got int32 \[3\], expected int64 \[n\]", id="dtype"),
        pytest.param(np.zeros((1, 3), np.int64), ValueError, r"got int64 \[1, 3\]", id="two axes"),
        pytest.param(np.zeros(6, np.int64)[::2], ValueError, "with stride 2, expected contiguous", id="stride"),
    ],
)
def test_bad_index(index, error, message):
    with pytest.raises(error, match=message):
        cpu_kernels.PackedQ8_0(random_q8_0(17, 64)).rows(index)


@pytest.mark.parametrize(
    "blocks, error, message",
    [
        pytest.param(np.zeros((2, 34), np.int8), TypeError, r"got int8 \[2, 34\], expected uint8", id="dtype"),
        pytest.param(np.zeros(34, np.uint8), ValueError, r"got uint8 \[34\], expected uint8 \[N", id="one axis"),
        pytest.param(np.zeros((2, 35), np.uint8), ValueError, "of 35 bytes, expected a multiple of 34", id="bytes"),
        pytest.param(np.zeros((2, 0), np.uint8), ValueError, "rows of 0 bytes", id="no columns"),
        pytest.param(np.zeros((4, 34), np.uint8)[::2], ValueError, "strides 68, 1", id="row stride"),
        pytest.param(np.zeros((34, 4), np.uint8).T, ValueError, "strides 1, 4", id="transposed"),
    ],
)
def test_bad_blocks(blocks, error, message):
    with pytest.raises(error, match=message):
        cpu_kernels.PackedQ8_0(blocks)


@pytest.mark.parametrize(
    "x, error, message",
    [
        pytest.param(np.zeros((1, 64), np.float64), TypeError, r"got float64 \[1, 64\], expected float32", id="dtype"),
        pytest.param(np.zeros(64, np.float32), ValueError, r"got float32 \[64\], expected float32 \[M, 64\]", id="1D"),
        pytest.param(np.zeros((1, 96), np.float32), ValueError, "expected 64 columns", id="columns"),
        pytest.param(np.zeros((64, 3), np.float32).T, ValueError, "contiguous", id="transposed"),
    ],
)
def test_bad_x(x, error, message):
    with pytest.raises(error, match=message):
        cpu_kernels.PackedQ8_0(random_q8_0(16, 64)).matmul(x)


@pytest.mark.parametrize(
    "out, error, message",
    [
        pytest.param(np.zeros((1, 16), np.float64), TypeError, "got float64", id="dtype"),
        pytest.param(np.zeros((2, 16), np.float32), ValueError, r"expected float32 \[1, 16\]", id="shape"),
        pytest.param(np.zeros((16, 1), np.float32), ValueError, r"expected float32 \[1, 16\]", id="orientation"),
        pytest.param(np.broadcast_to(np.float32(0), (1, 16)), TypeError, "writable", id="read-only"),
    ],
)
def test_bad_out(out, error, message):
    with pytest.raises(error, match=message):
        cpu_kernels.PackedQ8_0(random_q8_0(16, 64)).matmul(np.zeros((1, 64), np.float32), out=out)
