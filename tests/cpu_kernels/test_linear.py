import gguf
import numpy as np
import pytest
from support.close import assert_close
from support.q8_0 import packed_q8_0, q8_0_blocks, random_q8_0

import cpu_kernels
from cpu_kernels.linear import linear_ref, quantize_activations_ref, rounding_bound

GUARD = 32  # floats before and after an output


def identity(size: int) -> np.ndarray:
    """Blocks of the identity matrix: the outputs are the rounded activations themselves."""
    return q8_0_blocks(np.ones((size, size // 32)), np.eye(size).reshape(size, -1, 32))


def values_of(blocks: np.ndarray) -> np.ndarray:
    return gguf.dequantize(blocks, gguf.GGMLQuantizationType.Q8_0)


def guarded_output(num_tokens: int, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """An output full of NaN between two guards of NaN: (whole buffer, output [M, N])."""
    buffer = np.full(num_tokens * num_rows + 2 * GUARD, np.nan, np.float32)
    return buffer, buffer[GUARD:-GUARD].reshape(num_tokens, num_rows)


# ---- the oracle


def test_oracle_is_the_textbook_loop():
    num_tokens, num_rows, row_size = 3, 5, 96
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((num_rows, row_size)).astype(np.float32)
    x = rng.standard_normal((num_tokens, row_size)).astype(np.float32)
    expected = np.zeros((num_tokens, num_rows))
    for m in range(num_tokens):
        for n in range(num_rows):
            for b in range(row_size // 32):
                x_block = x[m, 32 * b : 32 * b + 32]
                absmax = np.float32(max(abs(value) for value in x_block))
                for k in range(32):
                    x_rounded = float(absmax / np.float32(127)) * round(float(x_block[k] * (np.float32(127) / absmax)))
                    expected[m, n] += float(weight[n, 32 * b + k]) * x_rounded
    # Sums of 96 products in two orders.
    bound = 2 * 96 * 2.0**-53 * (np.abs(x).astype(np.float64) @ np.abs(weight.astype(np.float64)).T)
    assert_close(linear_ref(x, weight), expected, atol=bound)


def test_oracle_rounds_in_the_order_that_it_is_given():
    rng = np.random.default_rng(2)
    x, weight = rng.standard_normal((4, 64)).astype(np.float32), rng.standard_normal((3, 64))
    order = rng.permutation(64)
    assert_close(linear_ref(x, weight, order), linear_ref(x[:, order], weight[:, order]))


def test_a_last_block_counts_as_filled_with_zeros():
    x = np.random.default_rng(3).standard_normal((4, 40)).astype(np.float32)
    codes, scale = quantize_activations_ref(x)
    filled = np.zeros((4, 64), np.float32)
    filled[:, :40] = x
    expected_codes, expected_scale = quantize_activations_ref(filled)
    assert_close(codes, expected_codes)
    assert_close(scale, expected_scale)


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
    packed = packed_q8_0(blocks)
    x = np.random.default_rng(4).standard_normal((131, row_size)).astype(np.float32)
    expected, bound = linear_ref(x, values_of(blocks)), rounding_bound(x, values_of(blocks))
    for num_tokens in (1, 2, 3, 4, 5, 6, 7, 11, 63, 131):
        buffer, out = guarded_output(num_tokens, num_rows)
        assert matmul(packed, x[:num_tokens], isa, out=out) is out
        assert_close(out, expected[:num_tokens], atol=bound[:num_tokens])
        assert np.isnan(buffer[:GUARD]).all() and np.isnan(buffer[-GUARD:]).all()


def test_more_tokens_than_one_chunk(isa, matmul):
    blocks = random_q8_0(17, 64)
    x = np.random.default_rng(5).standard_normal((1031, 64)).astype(np.float32)
    out = matmul(packed_q8_0(blocks), x, isa)
    assert_close(out, linear_ref(x, values_of(blocks)), atol=rounding_bound(x, values_of(blocks)))


def test_integers_are_exact_at_their_extremes(isa, matmul):
    """Scales of 1 and the largest codes of every sign: no instruction on the way may saturate."""
    rng = np.random.default_rng(6)
    codes = rng.choice([-128, -127, -1, 0, 1, 127], (48, 3, 32))
    codes[0], codes[1], codes[2] = -128, 127, 0
    x = rng.choice([-127, -126, 0, 1, 127], (13, 96)).astype(np.float32)
    x[0], x[1] = 127, -127
    x[:, ::32] = 127  # so that every scale is 1
    expected = x.astype(np.int64) @ codes.reshape(48, 96).T
    assert_close(matmul(packed_q8_0(q8_0_blocks(np.ones((48, 3)), codes)), x, isa), expected)


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
    assert_close(matmul(packed_q8_0(identity(64)), x, isa), expected)


def test_every_half_precision_scale(isa, matmul):
    scales = np.arange(2**16, dtype=np.uint16).view(np.float16)
    codes = np.zeros((2**16, 1, 32))
    codes[..., 5] = 1
    x = np.zeros((1, 32), np.float32)
    x[0, 5] = 127
    with np.errstate(over="ignore", invalid="ignore"):
        expected = scales.astype(np.float32)[None] * np.float32(127)
    assert_close(matmul(packed_q8_0(q8_0_blocks(scales[:, None], codes)), x, isa), expected)


def test_packed_bytes_are_gguf_bytes():
    packed = packed_q8_0(random_q8_0(48, 128))
    assert packed.shape == (48, 128)
    assert packed.nbytes == 48 * 128 // 32 * 34


def test_torch_tensors_are_taken_in_place():
    torch = pytest.importorskip("torch")
    blocks = random_q8_0(16, 64)
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    out = torch.full((3, 16), torch.nan)
    assert packed_q8_0(torch.from_numpy(blocks)).matmul(x, out=out) is out
    assert_close(out, linear_ref(x.numpy(), values_of(blocks)), atol=rounding_bound(x.numpy(), values_of(blocks)))


# ---- rows


@pytest.mark.parametrize("num_rows", [1, 15, 16, 17, 63, 131], ids="N={}".format)
def test_rows_are_the_stored_weights(num_rows):
    """The whole range of codes: -128 is one that quantizing never writes, and a file may hold."""
    rng = np.random.default_rng(num_rows)
    blocks = q8_0_blocks(rng.standard_normal((num_rows, 3)), rng.integers(-128, 128, (num_rows, 3, 32)))
    expected = gguf.dequantize(blocks, gguf.GGMLQuantizationType.Q8_0)
    packed = packed_q8_0(blocks)
    for index in (np.arange(num_rows), rng.permutation(num_rows), np.zeros(5, np.int64), np.zeros(0, np.int64)):
        assert_close(packed.rows(index), expected[index])


def test_rows_have_every_half_precision_scale():
    scales = np.arange(2**16, dtype=np.uint16).view(np.float16)
    blocks = q8_0_blocks(scales[:, None], np.tile(np.arange(-16, 16), (2**16, 1, 1)))
    with np.errstate(invalid="ignore"):
        expected = scales.astype(np.float32)[:, None] * np.arange(-16, 16, dtype=np.float32)
    rows = packed_q8_0(blocks).rows(np.arange(2**16))
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
        packed_q8_0(random_q8_0(17, 64)).rows(index)


BLOCKS = np.zeros((2, 68), np.uint8)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        pytest.param(("q8_0", {"blocks": BLOCKS.view(np.int8)}, (2, 64)), TypeError, r"got int8 \[2, 68\]", id="dtype"),
        pytest.param(("q8_0", {"blocks": BLOCKS[0]}, (1, 64)), ValueError, r"got uint8 \[68\], expected", id="1D"),
        pytest.param(("q8_0", {"blocks": BLOCKS}, (3, 64)), ValueError, r"expected uint8 \[3, 68\]", id="rows"),
        pytest.param(("q8_0", {"blocks": BLOCKS}, (2, 32)), ValueError, r"expected uint8 \[2, 34\]", id="columns"),
        pytest.param(("q8_0", {"blocks": BLOCKS}, (2, 63)), ValueError, "K = 63, expected a multiple of 32", id="K"),
        pytest.param(("q8_0", {"blocks": BLOCKS}, (2, 0)), ValueError, r"got \(2, 0\), expected \(N, K\)", id="no K"),
        pytest.param(("q8_0", {"blocks": BLOCKS}, (-2, 64)), ValueError, r"got \(-2, 64\)", id="negative"),
        pytest.param(("q8_0", {"blocks": BLOCKS[:, ::2]}, (2, 32)), ValueError, "strides 68, 2", id="strides"),
        pytest.param(("q8_0", {"codes": BLOCKS}, (2, 64)), ValueError, "got parts codes, expected blocks", id="part"),
        pytest.param(("q8_0", {"blocks": [1, 2]}, (2, 64)), TypeError, "blocks: expected an array", id="no array"),
        pytest.param(("q9_9", {"blocks": BLOCKS}, (2, 64)), NotImplementedError, "format: got q9_9", id="format"),
    ],
)
def test_bad_weight(arguments, error, message):
    with pytest.raises(error, match=message):
        cpu_kernels.PackedLinear(*arguments)


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
        packed_q8_0(random_q8_0(16, 64)).matmul(x)


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
        packed_q8_0(random_q8_0(16, 64)).matmul(np.zeros((1, 64), np.float32), out=out)


def test_unknown_path():
    with pytest.raises(
        ValueError, match="path=fast: expected direct, tile, bf16 or, of K-quants and trellis codes, int8x256"
    ):
        packed_q8_0(random_q8_0(16, 64)).matmul(np.zeros((1, 64), np.float32), path="fast")


@pytest.mark.parametrize(
    "format_name, shape, message",
    [
        pytest.param("q4_k", (16, -256), r"shape: got \(16, -256\), expected \(N, K\)", id="negative"),
        pytest.param("w8a8", (2**40, 2**40), r"at most 2\^48 weights", id="too many"),
        pytest.param("w8a8", (1, 2**30), "got K = 1073741824, expected at most", id="sum beyond int32"),
        pytest.param("q4_0", (16, 33), "got K = 33, expected a multiple of 32 for q4_0", id="part of a block"),
        pytest.param("w4g128", (16, 192), "got K = 192, expected a multiple of 128", id="part of a group"),
        pytest.param("bf16", (-1, 64), r"got \(-1, 64\)", id="rows"),
    ],
)
def test_bytes_are_reported_for_weights_that_can_be_packed(format_name, shape, message):
    with pytest.raises(ValueError, match=message):
        cpu_kernels.packed_linear_bytes(format_name, shape)


def test_a_negative_number_of_tokens_has_no_choice():
    packed = packed_q8_0(random_q8_0(16, 64))
    assert packed.choice(0) == packed.choice(1)
    with pytest.raises(ValueError, match="num_tokens: got -1, expected 0 or more"):
        packed.choice(-1)


# ---- paths


def test_the_path_is_the_one_that_was_asked_for(monkeypatch):
    packed = packed_q8_0(random_q8_0(16, 64))
    monkeypatch.delenv("QBENCH_LINEAR_PATH", raising=False)
    assert packed.choice(1)[1] == "direct"
    assert packed.choice(512)[1] == ("bf16" if "amx" in cpu_kernels.features() else "tile")
    monkeypatch.setenv("QBENCH_LINEAR_PATH", "tile")
    assert packed.choice(1)[1] == "tile"
    assert packed.choice(1, path="direct")[1] == "direct"
    monkeypatch.setenv("QBENCH_LINEAR_PATH", "fast")
    with pytest.raises(ValueError, match="QBENCH_LINEAR_PATH=fast: expected direct, tile or bf16"):
        packed.matmul(np.zeros((1, 64), np.float32))


def test_the_path_changes_nothing(isa, matmul):
    """Both add the same terms in the same order."""
    packed = packed_q8_0(random_q8_0(47, 1120))
    x = np.random.default_rng(10).standard_normal((23, 1120)).astype(np.float32)
    assert_close(matmul(packed, x, isa, path="tile"), matmul(packed, x, isa, path="direct"))
