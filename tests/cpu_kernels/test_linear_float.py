import numpy as np
import pytest
from support.close import assert_close
from support.isas import isas_of
from support.random_linear import assert_rows_are

import cpu_kernels
from cpu_kernels.linear_float import BF16_PRODUCT_ISAS, linear_float_ref, round_to_bf16_ref, rounding_bound

GUARD = 32  # floats before and after an output
FORMATS = ("bf16", "f16", "f32")
CASES = [
    pytest.param(name, *param.values, marks=param.marks, id=f"{name}-{param.values[0]}")
    for name in FORMATS
    for param in isas_of(f"linear_{name}")
]
each_case = pytest.mark.parametrize("name, isa", CASES)


def stored_as(name: str, values: np.ndarray) -> np.ndarray:
    """[N, K] float32 -> bytes [N, K * itemsize] uint8, rounded as the format has it"""
    if name == "bf16":
        values = (round_to_bf16_ref(values).view(np.uint32) >> 16).astype(np.uint16)
    elif name == "f16":
        with np.errstate(over="ignore"):
            values = values.astype(np.float16)
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.shape[1] * values.itemsize)


def values_of(name: str, blocks: np.ndarray) -> np.ndarray:
    if name == "bf16":
        return (blocks.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return blocks.view(np.float16 if name == "f16" else np.float32).astype(np.float32)


def pack(name: str, blocks: np.ndarray) -> cpu_kernels.PackedLinear:
    itemsize = 4 if name == "f32" else 2
    return cpu_kernels.PackedLinear(name, {"blocks": blocks}, (len(blocks), blocks.shape[1] // itemsize))


def random_blocks(name: str, num_rows: int, row_size: int, seed: int = 0) -> np.ndarray:
    return stored_as(name, np.random.default_rng(seed).standard_normal((num_rows, row_size)).astype(np.float32))


def random_x(num_tokens: int, row_size: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((num_tokens, row_size)).astype(np.float32)


def oracle(name: str, isa: str, x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The exact output, and the largest error of float32."""
    rounds_weight = name == "f16" and isa in BF16_PRODUCT_ISAS
    rounds_x = name == "bf16" or rounds_weight
    seen = round_to_bf16_ref(x) if rounds_x else x
    met = round_to_bf16_ref(weight) if rounds_weight else weight
    return linear_float_ref(x, weight, rounds_x, rounds_weight), rounding_bound(seen, met)


# ---- the oracle


def test_rounding_to_bf16_is_that_of_torch():
    torch = pytest.importorskip("torch")
    bits = np.random.default_rng(2).integers(0, 2**32, 100_000, dtype=np.uint32)
    values = np.concatenate([bits.view(np.float32), np.float32([0.0, -0.0, np.inf, -np.inf, 3.4e38, 1e-45])])
    expected = torch.from_numpy(values).bfloat16().float().numpy()
    got = round_to_bf16_ref(values)
    assert_close(got, expected)
    assert (np.signbit(got) == np.signbit(expected))[~np.isnan(values)].all()


def test_oracle_is_the_textbook_loop():
    x, weight = random_x(3, 9), np.random.default_rng(3).standard_normal((5, 9)).astype(np.float32)
    expected = [[sum(float(x[m, k]) * float(weight[n, k]) for k in range(9)) for n in range(5)] for m in range(3)]
    bound = 2 * 9 * 2.0**-53 * (np.abs(x).astype(np.float64) @ np.abs(weight.astype(np.float64)).T)
    assert_close(linear_float_ref(x, weight, rounds_x=False), expected, atol=bound)


# ---- the kernels


@each_case
@pytest.mark.parametrize("row_size", [1, 3, 64, 131, 1024], ids="K={}".format)
@pytest.mark.parametrize("num_rows", [1, 3, 16, 33, 63, 131], ids="N={}".format)
def test_matches_oracle(name, isa, matmul, num_rows, row_size):
    blocks, x = random_blocks(name, num_rows, row_size), random_x(131, row_size)
    packed = pack(name, blocks)
    expected, bound = oracle(name, isa, x, values_of(name, blocks))
    for num_tokens in (1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 63, 131):
        buffer = np.full(num_tokens * num_rows + 2 * GUARD, np.nan, np.float32)
        out = buffer[GUARD:-GUARD].reshape(num_tokens, num_rows)
        assert matmul(packed, x[:num_tokens], isa, out=out) is out
        assert_close(out, expected[:num_tokens], atol=bound[:num_tokens])
        assert np.isnan(buffer[:GUARD]).all() and np.isnan(buffer[-GUARD:]).all()


@each_case
def test_activations_are_rounded_as_the_oracle_does(name, isa, matmul):
    """Through an identity matrix: every bit of bfloat16, ties and both ends of the range; vdpbf16ps flushes."""
    bits = np.random.default_rng(4).integers(0, 2**32, (31, 64), dtype=np.uint32)
    bits[:8] = bits[:8] & 0xFFFF0000 | 0x8000  # ties
    x = bits.view(np.float32)
    x = np.where(np.isfinite(x), x, np.float32(1))
    blocks = stored_as(name, np.eye(64, dtype=np.float32))
    expected, _ = oracle(name, isa, x, np.eye(64, dtype=np.float32))
    flushed = 2.0**-126 if isa in BF16_PRODUCT_ISAS else 0.0
    assert_close(matmul(pack(name, blocks), x, isa), expected.astype(np.float32), atol=flushed)


@each_case
def test_every_stored_weight(name, isa, matmul):
    """All 65536 of the 16-bit formats, in every place of a group; NaN and infinity included."""
    if name == "f32":
        words = np.random.default_rng(5).integers(0, 2**32, 2**16, dtype=np.uint32)
        weight = words.view(np.float32).reshape(-1, 1)
    else:
        weight = values_of(name, np.arange(2**16, dtype=np.uint16).reshape(-1, 1).view(np.uint8))
    blocks = stored_as(name, weight)
    expected, _ = oracle(name, isa, np.ones((1, 1), np.float32), values_of(name, blocks))
    flushed = 2.0**-126 if isa in BF16_PRODUCT_ISAS else 0.0
    got = matmul(pack(name, blocks), np.ones((1, 1), np.float32), isa)
    assert_close(got, expected.astype(np.float32), atol=flushed)


@each_case
def test_more_tokens_than_one_chunk(name, isa, matmul):
    blocks, x = random_blocks(name, 17, 64), random_x(1031, 64)
    expected, bound = oracle(name, isa, x, values_of(name, blocks))
    assert_close(matmul(pack(name, blocks), x, isa), expected, atol=bound)


# ---- which of them runs


@pytest.mark.parametrize("name", ["bf16", "f32"])
def test_both_paths_are_one(name):
    packed, x = pack(name, random_blocks(name, 35, 131)), random_x(7, 131)
    assert_close(packed.matmul(x, path="tile"), packed.matmul(x, path="direct"))


needs_bf16 = pytest.mark.skipif("avx512_bf16" not in cpu_kernels.features(), reason="this machine has no avx512_bf16")


@needs_bf16
def test_f16_is_exact_for_few_tokens_and_bf16_for_many(monkeypatch):
    monkeypatch.setenv("QBENCH_ISA", "avx512_bf16")
    packed = pack("f16", random_blocks("f16", 16, 64))
    assert packed.choice(7) == ("avx512", "direct")
    assert packed.choice(8) == ("avx512_bf16", "tile")
    assert packed.choice(512, path="direct") == ("avx512", "direct")
    assert packed.choice(1, path="tile") == ("avx512_bf16", "tile")
    monkeypatch.setenv("QBENCH_F16_COMPUTE", "float32")
    assert packed.choice(512) == ("avx512", "direct")
    monkeypatch.setenv("QBENCH_F16_COMPUTE", "bfloat16")
    assert packed.choice(512) == ("avx512_bf16", "tile")
    monkeypatch.setenv("QBENCH_ISA", "avx512")
    assert packed.choice(512) == ("avx512", "direct")


@needs_bf16
def test_the_path_of_f16_may_be_forced(monkeypatch):
    monkeypatch.setenv("QBENCH_ISA", "avx512_bf16")
    packed = pack("f16", random_blocks("f16", 16, 64))
    monkeypatch.setenv("QBENCH_LINEAR_PATH", "direct")
    assert packed.choice(512) == ("avx512", "direct")
    assert packed.choice(1, path="tile") == ("avx512_bf16", "tile")
    monkeypatch.setenv("QBENCH_LINEAR_PATH", "tile")
    assert packed.choice(1) == ("avx512_bf16", "tile")
    assert packed.choice(512, path="direct") == ("avx512", "direct")


@pytest.mark.parametrize("name", FORMATS)
def test_an_unknown_path_is_refused(monkeypatch, name):
    monkeypatch.setenv("QBENCH_LINEAR_PATH", "fast")
    with pytest.raises(ValueError, match="QBENCH_LINEAR_PATH=fast: expected direct, tile or bf16"):
        pack(name, random_blocks(name, 16, 64)).choice(1)


@needs_bf16
def test_f16_names_its_missing_instructions(monkeypatch):
    packed = pack("f16", random_blocks("f16", 16, 64))
    with pytest.raises(RuntimeError, match="no avx512_bf16 implementation of the direct path"):
        packed.choice(1, isa="avx512_bf16", path="direct")
    monkeypatch.setenv("QBENCH_F16_COMPUTE", "int8")
    with pytest.raises(RuntimeError, match="QBENCH_F16_COMPUTE=int8: expected bfloat16 or float32"):
        packed.choice(512)


# ---- bytes, rows, errors


@pytest.mark.parametrize("num_rows", [1, 16, 63], ids="N={}".format)
@pytest.mark.parametrize("name", FORMATS)
def test_rows_match_the_stored_weights(name, num_rows):
    blocks = random_blocks(name, num_rows, 131)
    assert_rows_are(values_of(name, blocks), pack(name, blocks).rows)


@pytest.mark.parametrize("name", FORMATS)
def test_packed_bytes_are_the_files_bytes(name):
    blocks = random_blocks(name, 48, 128)
    assert pack(name, blocks).nbytes == blocks.nbytes
    odd = pack(name, random_blocks(name, 33, 65))
    columns = {"bf16": 96 * 2, "f16": 65 * 2, "f32": 65 * 4}[name]
    assert odd.nbytes == 48 * columns == cpu_kernels.packed_linear_bytes(name, (33, 65))


@pytest.mark.parametrize(
    "blocks, error, message",
    [
        pytest.param(np.zeros((4, 128), np.int8), TypeError, "got int8 .*expected uint8", id="dtype"),
        pytest.param(np.zeros((4, 126), np.uint8), ValueError, r"expected uint8 \[4, 128\]", id="bytes"),
        pytest.param(np.zeros((3, 128), np.uint8), ValueError, r"expected uint8 \[4, 128\]", id="rows"),
        pytest.param(np.zeros((8, 128), np.uint8)[::2], ValueError, "contiguous rows", id="stride"),
    ],
)
def test_bad_blocks(blocks, error, message):
    with pytest.raises(error, match=message):
        cpu_kernels.PackedLinear("bf16", {"blocks": blocks}, (4, 64))
