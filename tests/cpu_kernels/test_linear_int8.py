import numpy as np
import pytest
from support.close import assert_close

import cpu_kernels
from cpu_kernels.linear_int8 import MAX_ROW_SIZE, linear_w8a8_ref, quantize_tokens_ref

GUARD = 32  # floats before and after an output
FIXED = np.float32(0.02)
OP = "linear_w8a8"


def random_weight(num_rows: int, row_size: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "weight": rng.integers(-128, 128, (num_rows, row_size), dtype=np.int8),
        "weight_scale": (0.5 + rng.random((num_rows, 1))).astype(np.float32),
    }


def random_x(num_tokens: int, row_size: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((num_tokens, row_size)).astype(np.float32)


def pack(parts: dict[str, np.ndarray], format_name: str = "w8a8") -> cpu_kernels.PackedLinear:
    fixed = {"input_scale": np.array([FIXED])} if "astatic" in format_name else {}
    return cpu_kernels.PackedLinear(format_name, parts | fixed, parts["weight"].shape)


def scale_of(format_name: str, x: np.ndarray) -> np.ndarray | None:
    """The divisor for quantize_tokens_ref."""
    if "astatic" in format_name:
        return np.full((1, 1), FIXED)
    return np.abs(x).max(keepdims=True) / np.float32(127) if "atensor" in format_name else None


# ---- the oracle


def test_oracle_is_the_textbook_loop():
    parts, x = random_weight(5, 9), random_x(3, 9)
    expected = np.zeros((3, 5), np.float32)
    for m in range(3):
        scale = np.float32(max(abs(value) for value in x[m])) / np.float32(127)
        for n in range(5):
            total = sum(round(float(x[m, k] / scale)) * int(parts["weight"][n, k]) for k in range(9))
            expected[m, n] = np.float32(total) * parts["weight_scale"][n, 0] * scale
    assert_close(linear_w8a8_ref(x, **parts), expected)


def test_rounding_an_activation_moves_it_half_a_step_at_most():
    x = random_x(4, 256)
    codes, scale = quantize_tokens_ref(x)
    assert (np.abs(codes * scale - x) <= scale * (0.5 + 2.0**-15)).all()


# ---- the kernels, bit for bit


@pytest.mark.parametrize("row_size", [1, 3, 64, 131, 1024], ids="K={}".format)
@pytest.mark.parametrize("num_rows", [1, 3, 16, 33, 63, 131], ids="N={}".format)
def test_equals_the_oracle(isa, matmul, num_rows, row_size):
    parts, x = random_weight(num_rows, row_size), random_x(131, row_size)
    packed, expected = pack(parts), linear_w8a8_ref(x, **parts)
    for num_tokens in (1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 63, 131):
        buffer = np.full(num_tokens * num_rows + 2 * GUARD, np.nan, np.float32)
        out = buffer[GUARD:-GUARD].reshape(num_tokens, num_rows)
        assert matmul(packed, x[:num_tokens], isa, out=out) is out
        assert_close(out, expected[:num_tokens])
        assert np.isnan(buffer[:GUARD]).all() and np.isnan(buffer[-GUARD:]).all()


@pytest.mark.parametrize("name", ["w8a8-wtensor", "w8a8-atensor", "w8a8-astatic", "w8a8-wtensor-atensor"])
def test_every_way_to_scale_activations(isa, matmul, name):
    parts, x = random_weight(35, 131), random_x(7, 131)
    x[3] *= 50  # beyond the range of the fixed scale
    assert_close(matmul(pack(parts, name), x, isa), linear_w8a8_ref(x, **parts, scale=scale_of(name, x)))


def test_more_tokens_than_one_chunk(isa, matmul):
    parts, x = random_weight(17, 64), random_x(1031, 64)
    for name in ("w8a8", "w8a8-atensor"):
        assert_close(matmul(pack(parts, name), x, isa), linear_w8a8_ref(x, **parts, scale=scale_of(name, x)))


def test_integers_are_exact_at_their_extremes(isa, matmul):
    """The largest codes of every sign on both sides: no instruction on the way may saturate."""
    rng = np.random.default_rng(6)
    weight = rng.choice([-128, -127, -1, 0, 1, 127], (48, 192)).astype(np.int8)
    weight[0], weight[1], weight[2] = -128, 127, 0
    x = rng.choice([-128, -127, 0, 1, 127], (13, 192)).astype(np.float32) * FIXED
    x[0], x[1], x[2] = -129 * FIXED, 127 * FIXED, -np.inf
    parts = {"weight": weight, "weight_scale": np.ones((48, 1), np.float32)}
    y = matmul(pack(parts, "w8a8-astatic"), x, isa)
    assert_close(y, linear_w8a8_ref(x, **parts, scale=scale_of("w8a8-astatic", x)))
    assert_close(y[0, :2] / np.float32(FIXED), [128.0 * 128 * 192, -128.0 * 127 * 192], rtol=2.0**-22)


def test_the_longest_row_overflows_nothing(isa, matmul):
    parts = {
        "weight": np.full((3, MAX_ROW_SIZE), -128, np.int8),
        "weight_scale": np.ones((3, 1), np.float32),
    }
    x = np.full((2, MAX_ROW_SIZE), -130 * FIXED, np.float32)
    exact = np.float32(2**14 * MAX_ROW_SIZE)
    assert exact < 2**31
    assert_close(matmul(pack(parts, "w8a8-astatic"), x, isa), np.full((2, 3), exact * FIXED))


def test_activations_are_rounded_as_the_oracle_does(isa, matmul):
    x = random_x(40, 64) * np.float32(10.0) ** np.random.default_rng(7).integers(-30, 30, (40, 1))
    x = x.astype(np.float32)
    x[0], x[0, 0] = np.arange(64) - 31.5, 127  # ties, as 127 makes the scale 1
    x[1] = 0
    x[2] = 2.0**-149  # absmax / 127 too small for a normal number
    x[3] = np.finfo(np.float32).max
    identity = {"weight": np.eye(64, dtype=np.int8), "weight_scale": np.ones((64, 1), np.float32)}
    assert_close(matmul(pack(identity), x, isa), linear_w8a8_ref(x, **identity))


def test_nan_with_a_scale_for_all_tokens(isa, matmul):
    parts, x = random_weight(19, 67), random_x(7, 67)
    x[2, 5] = np.nan
    assert np.isnan(matmul(pack(parts, "w8a8-atensor"), x, isa)).all()
    y = matmul(pack(parts, "w8a8-astatic"), x, isa)
    assert np.isnan(y[2]).all() and np.isfinite(np.delete(y, 2, axis=0)).all()


def test_both_paths_are_one():
    packed, x = pack(random_weight(35, 131)), random_x(7, 131)
    assert_close(packed.matmul(x, path="tile"), packed.matmul(x, path="direct"))


def test_the_one_path_bears_the_name_that_was_asked_for(monkeypatch):
    packed = pack(random_weight(16, 64))
    monkeypatch.delenv("QBENCH_LINEAR_PATH", raising=False)
    assert [packed.choice(num_tokens)[1] for num_tokens in (1, 512)] == ["direct", "direct"]
    monkeypatch.setenv("QBENCH_LINEAR_PATH", "tile")
    assert packed.choice(1)[1] == "tile"
    assert packed.choice(1, path="direct")[1] == "direct"
    monkeypatch.setenv("QBENCH_LINEAR_PATH", "fast")
    with pytest.raises(ValueError, match="QBENCH_LINEAR_PATH=fast: expected direct, tile or bf16"):
        packed.choice(1)


# ---- bytes, rows, errors


@pytest.mark.parametrize("num_rows", [1, 16, 63], ids="N={}".format)
def test_rows_are_scale_times_code(num_rows):
    parts = random_weight(num_rows, 131)
    index = np.random.default_rng(4).integers(0, num_rows, 40)
    expected = parts["weight_scale"][index] * parts["weight"][index].astype(np.float32)
    assert_close(pack(parts).rows(index), expected)


def test_packed_bytes_are_codes_and_scales():
    assert pack(random_weight(48, 128)).nbytes == 48 * (128 + 4)
    odd = pack(random_weight(33, 130))
    assert odd.nbytes == 48 * (192 + 4) == cpu_kernels.packed_linear_bytes("w8a8", (33, 130))


PARTS = random_weight(4, 64)
STATIC = PARTS | {"input_scale": np.ones(1, np.float32)}


@pytest.mark.parametrize(
    "name, parts, error, message",
    [
        pytest.param("w8a8", {}, ValueError, "got parts none, expected weight", id="no weight"),
        pytest.param("w8a8", {"weight": PARTS["weight"]}, ValueError, "expected weight_scale", id="no scale"),
        pytest.param(
            "w8a8", PARTS | {"weight": PARTS["weight"].astype(np.uint8)}, TypeError, "got uint8 .*int8", id="dtype"
        ),
        pytest.param(
            "w8a8", PARTS | {"weight": PARTS["weight"][:3]}, ValueError, r"expected int8 \[4, 64\]", id="rows"
        ),
        pytest.param(
            "w8a8", PARTS | {"weight": np.zeros((64, 4), np.int8).T}, ValueError, "contiguous rows", id="transposed"
        ),
        pytest.param(
            "w8a8", PARTS | {"weight_scale": np.ones((1, 1), np.float32)}, ValueError, r"\[4, 1\]", id="one scale"
        ),
        pytest.param("w8a8-astatic", PARTS, ValueError, "expected input_scale", id="no input scale"),
        pytest.param(
            "w8a8-astatic", STATIC | {"input_scale": np.zeros(1, np.float32)}, ValueError, "above 0", id="scale of 0"
        ),
        pytest.param(
            "w8a8-astatic", STATIC | {"input_scale": np.ones(2, np.float32)}, ValueError, "expected", id="two scales"
        ),
    ],
)
def test_bad_parts(name, parts, error, message):
    with pytest.raises(error, match=message):
        cpu_kernels.PackedLinear(name, parts, (4, 64))


def test_rows_that_could_overflow_are_refused():
    parts = random_weight(1, MAX_ROW_SIZE + 1)
    with pytest.raises(ValueError, match=f"expected at most {MAX_ROW_SIZE}"):
        pack(parts)
