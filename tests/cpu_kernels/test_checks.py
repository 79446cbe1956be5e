"""The checks of every binding before it touches a byte: alignment of its inputs, overlap of its outputs."""

import numpy as np
import pytest
from support.q8_0 import packed_q8_0, random_q8_0

import cpu_kernels
from cpu_kernels.attention import KVStore, attend_latents
from cpu_kernels.decode import decode
from cpu_kernels.encode import encode
from cpu_kernels.gram import add_gram
from cpu_kernels.group_quant import quantize_rows

F32 = np.float32
ONES = np.ones((4, 64), F32)


def packed() -> cpu_kernels.PackedLinear:
    return packed_q8_0(random_q8_0(64, 64))


def one_off(array: np.ndarray) -> np.ndarray:
    """The same values, one byte after their proper beginning."""
    buffer = np.zeros(array.nbytes + 64, np.uint8)
    start = (1 - buffer.ctypes.data) % 64
    moved = buffer[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    moved[...] = array
    assert moved.ctypes.data % 64 == 1
    return moved


TABLE, LENGTHS = np.zeros((1, 1), np.int32), np.ones(1, np.int64)
HEADS = np.ones((1, 1, 1, 32), F32)
LATENTS, QUERY = np.zeros((1, 16, 64), F32), np.ones((1, 2, 64), F32)


def append(k: np.ndarray = HEADS, table: np.ndarray = TABLE, lengths: np.ndarray = LENGTHS) -> None:
    KVStore("f32", 1, 16, 1, 32).append(k, HEADS, table, lengths)


def attend(q: np.ndarray = QUERY, latents: np.ndarray = LATENTS, out: np.ndarray | None = None) -> None:
    attend_latents(q, "f32", latents, TABLE, LENGTHS, np.empty_like(QUERY) if out is None else out, 1.0)


def w8a8(scale: np.ndarray) -> None:
    cpu_kernels.PackedLinear("w8a8", {"weight": np.ones((4, 64), np.int8), "weight_scale": scale}, (4, 64))


@pytest.mark.parametrize(
    "call, array",
    [
        pytest.param(lambda x: packed().matmul(x), ONES, id="matmul"),
        pytest.param(lambda out: packed().matmul(ONES, out=out), ONES, id="out"),
        pytest.param(lambda index: packed().rows(index), np.zeros(3, np.int64), id="rows"),
        pytest.param(w8a8, np.ones((4, 1), F32), id="scales"),
        pytest.param(lambda blocks: encode("q8_0", blocks), ONES[:, :32].copy(), id="encode"),
        pytest.param(quantize_rows, ONES, id="quantize"),
        pytest.param(lambda gram: add_gram(ONES, gram), np.zeros((64, 64), F32), id="gram"),
        pytest.param(lambda x: cpu_kernels.rms_norm(x, ONES[0], 1e-6), ONES, id="norm"),
        pytest.param(lambda weight: cpu_kernels.rms_norm(ONES, weight, 1e-6), ONES[0], id="norm-weight"),
        pytest.param(append, HEADS, id="keys"),
        pytest.param(lambda table: append(table=table), TABLE, id="block-table"),
        pytest.param(lambda lengths: append(lengths=lengths), LENGTHS, id="lengths"),
        pytest.param(attend, QUERY, id="queries"),
        pytest.param(lambda latents: attend(latents=latents), LATENTS, id="latents"),
        pytest.param(lambda out: attend(out=out), QUERY, id="attention-out"),
    ],
)
def test_an_address_within_a_value_is_refused(call, array):
    call(array.copy())
    with pytest.raises(ValueError, match=rf"no multiple of {array.itemsize}, expected .*aligned"):
        call(one_off(array))


def test_bytes_may_have_any_address():
    blocks = random_q8_0(2, 64).reshape(-1, 34)
    assert (decode("q8_0", one_off(blocks)) == decode("q8_0", blocks)).all()


def test_an_empty_array_may_have_any_address():
    empty = np.zeros(65, np.uint8)[1:1].view(F32).reshape(0, 64)
    assert packed().matmul(empty).shape == (0, 64)


# ---- outputs


def shifted(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """(x, out), a row apart."""
    buffer = np.random.default_rng(1).standard_normal((num_rows + 1, 64)).astype(F32)
    return buffer[:-1], buffer[1:]


def silu_mul_up(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    return cpu_kernels.silu_mul(np.ones_like(x), x, out=out)


STEPS = [
    pytest.param(lambda x, out: packed().matmul(x, out=out), id="matmul"),
    pytest.param(lambda x, out: cpu_kernels.rms_norm(x, ONES[0], 1e-6, out=out), id="norm"),
    pytest.param(lambda x, out: cpu_kernels.silu_mul(x, np.ones_like(x), out=out), id="silu-gate"),
    pytest.param(silu_mul_up, id="silu-up"),
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("num_tokens", [2, 1100])
def test_an_output_over_part_of_its_input_is_refused(step, num_tokens):
    x, out = shifted(num_tokens)
    before = x.copy()
    for read, written in ((x, out), (out, x)):
        with pytest.raises(ValueError, match="out: got memory that overlaps"):
            step(read, written)
    assert (x == before).all()


@pytest.mark.parametrize("step", STEPS)
def test_an_output_may_be_its_input_or_next_to_it(step):
    x = np.random.default_rng(2).standard_normal((1100, 64)).astype(F32)
    expected = step(x, np.empty_like(x))
    beside = np.concatenate([x, np.empty_like(x)])
    assert (step(beside[:1100], beside[1100:]) == expected).all()
    assert (step(beside[:1100], beside[:1100]) == expected).all()


def test_an_output_of_other_columns_is_not_its_input():
    buffer = np.zeros((8, 64), F32)
    with pytest.raises(ValueError, match="overlaps x"):
        packed_q8_0(random_q8_0(128, 64)).matmul(buffer[:4], out=buffer.reshape(4, 128))


def test_decoded_weights_are_not_written_over_their_blocks():
    buffer = np.zeros(4 * 32 * 4, np.uint8)
    with pytest.raises(ValueError, match="overlaps blocks"):
        decode("q8_0", buffer[: 4 * 34].reshape(4, 34), out=buffer.view(F32).reshape(4, 32))
