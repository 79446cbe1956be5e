"""Tokens that take the slot of another one, and slots that move together: every byte, in every format."""

import numpy as np
import pytest
from support.attention import FLOAT8, FORMATS, normal, scales_of
from support.close import assert_close

import cpu_kernels
from cpu_kernels import KVStore

BATCH, KV_HEADS, HEAD_DIM, PAGE, LENGTH = 2, 3, 32, 48, 131
TABLE = np.array([[4, 0, 6], [2, 5, 1]], np.int32)  # page 3 belongs to no sequence
NUM_PAGES = 7
STORES = [(name, scales_of(name)) for name in FORMATS] + [(name, "per_tensor") for name in FLOAT8]
STORES += [("e4m3", "given")]


@pytest.fixture(params=[1, 2], ids="{} threads".format)
def threads(request):
    before = cpu_kernels.get_num_threads()
    cpu_kernels.set_num_threads(request.param)
    yield request.param
    cpu_kernels.set_num_threads(before)


class Held:
    """Two sequences of LENGTH tokens, and other bytes in the page that they do not have."""

    def __init__(self, name: str, scales: str, length: int = LENGTH) -> None:
        is_given = name in FLOAT8 and scales == "given"
        given = (np.full(1, 0.02, np.float32), np.full(1, 0.03, np.float32)) if is_given else (None, None)
        self.store = KVStore(name, NUM_PAGES, PAGE, KV_HEADS, HEAD_DIM, scales, *given)
        self.lengths = np.full(BATCH, length)
        everything = normal(9, 1, KV_HEADS, NUM_PAGES * PAGE, HEAD_DIM)
        whole = np.arange(NUM_PAGES, dtype=np.int32)[None]
        self.store.append(everything, -everything, whole, np.array([NUM_PAGES * PAGE]))
        self.store.append(*new_tokens(length), TABLE, self.lengths)

    def read(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """k and v [B, G, length, D] as they are kept"""
        kept = [np.full((BATCH, KV_HEADS, length, HEAD_DIM), np.nan, np.float32) for _ in range(2)]
        self.store.read(TABLE, np.full(BATCH, length), *kept)
        return kept[0], kept[1]

    def page(self, page: int) -> np.ndarray:
        out = np.empty(self.store.page_bytes, np.uint8)
        self.store.read_page(page, out)
        return out


def new_tokens(count: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """k and v of tokens with scales that differ from token to token and from head to head"""
    size = np.exp(normal(seed + 2, BATCH, KV_HEADS, count, 1))
    return normal(seed, BATCH, KV_HEADS, count, HEAD_DIM) * size, normal(
        seed + 1, BATCH, KV_HEADS, count, HEAD_DIM
    ) / size


def chosen_slots(scales: str, count: int, seed: int = 5) -> np.ndarray:
    """[B, G, count] rising; the heads of a token that share a scale share their slots"""
    rng = np.random.default_rng(seed)
    keep = np.stack([np.sort(rng.permutation(LENGTH)[:count]) for _ in range(BATCH * KV_HEADS)])
    keep = keep.reshape(BATCH, KV_HEADS, count)
    return np.repeat(keep[:, :1], KV_HEADS, 1) if scales == "per_tensor" else keep


# ---- compact


@pytest.mark.parametrize("count", [0, 1, 17, 100, LENGTH], ids="n={}".format)
@pytest.mark.parametrize("name, scales", STORES)
def test_kept_tokens_move_to_the_front(threads, name, scales, count):
    held = Held(name, scales)
    keep, before, other = chosen_slots(scales, count), held.read(LENGTH), held.page(3)
    held.store.compact(TABLE, held.lengths, keep)
    for got, was in zip(held.read(count), before, strict=True):
        assert_close(got, np.take_along_axis(was, keep[..., None], 2))
    assert (held.page(3) == other).all()


@pytest.mark.parametrize("away", [16, 32, 20], ids="by {}".format)
@pytest.mark.parametrize("name, scales", STORES)
def test_a_window_moves_up_behind_its_sinks(name, scales, away):
    """Blocks of 16 tokens move whole if both ends are whole: here from slot 16 on, and up to the last token."""
    held = Held(name, scales)
    kept = np.concatenate([np.arange(4), np.arange(4 + away, LENGTH)])
    keep = np.broadcast_to(kept, (BATCH, KV_HEADS, len(kept))).copy()
    before, other = held.read(LENGTH), held.page(3)
    held.store.compact(TABLE, held.lengths, keep)
    for got, was in zip(held.read(len(kept)), before, strict=True):
        assert_close(got, was[:, :, kept])
    assert (held.page(3) == other).all()


@pytest.mark.parametrize("name, scales", STORES)
def test_tokens_behind_the_front_stay(name, scales):
    """A slot from n on is free, but its neighbour in a byte or a lane is another token's."""
    held = Held(name, scales)
    keep, before = chosen_slots(scales, 21), held.read(LENGTH)
    held.store.compact(TABLE, held.lengths, keep)
    for got, was in zip(held.read(LENGTH), before, strict=True):
        assert_close(got[:, :, 21:], was[:, :, 21:])


@pytest.mark.parametrize("name", FORMATS)
def test_attention_after_compaction_is_that_of_the_kept_tokens(name):
    held, q = Held(name, scales_of(name)), normal(3, BATCH, 2 * KV_HEADS, 1, HEAD_DIM)
    keep = chosen_slots("per_tensor", 50)  # the same for all heads, so that another store can hold them
    fresh = Held(name, scales_of(name), 50)
    fresh.store.append(*(np.take_along_axis(x, keep[..., None], 2) for x in new_tokens(LENGTH)), TABLE, fresh.lengths)
    held.store.compact(TABLE, held.lengths, keep)
    outputs = []
    for each in (held, fresh):
        outputs.append(np.full_like(q, np.nan))
        each.store.attend(q, TABLE, fresh.lengths, outputs[-1], 0.2)
    assert_close(outputs[0], outputs[1])


def test_sequences_of_other_lengths():
    held, lengths = Held("int4", "given"), np.array([LENGTH, 33])
    keep = np.stack([np.arange(100, 120), np.arange(13, 33)])[:, None].repeat(KV_HEADS, 1)
    before = held.read(LENGTH)
    held.store.compact(TABLE, lengths, keep)
    for got, was in zip(held.read(20), before, strict=True):
        assert_close(got, np.take_along_axis(was, keep[..., None], 2))


@pytest.mark.parametrize("name", ["f16", "int4"])
def test_heads_that_keep_fewer(name):
    held, keep = Held(name, "given"), chosen_slots("given", 40)
    keep[0, 1, 7:], keep[1, 2, 0:] = -1, -1
    before, num_held = held.read(LENGTH), np.full((BATCH, KV_HEADS), LENGTH)
    num_held[1, 2] = 1
    held.store.compact(TABLE, num_held, keep)
    for got, was in zip(held.read(LENGTH), before, strict=True):
        moved = np.take_along_axis(was, keep[..., None], 2)
        is_kept = np.pad(keep >= 0, ((0, 0), (0, 0), (0, LENGTH - 40)))
        assert_close(got[is_kept], moved[keep >= 0])
        assert_close(got[~is_kept], was[~is_kept])


# ---- slots


@pytest.mark.parametrize("name, scales", STORES)
def test_a_new_token_takes_the_slots_of_others(threads, name, scales):
    held, at_the_end = Held(name, scales), Held(name, scales)
    slots = chosen_slots(scales, 1)[..., 0]
    slots[1] = LENGTH - 1
    k, v = new_tokens(1, seed=20)
    before = held.read(LENGTH)
    at_the_end.store.append(k, v, TABLE, held.lengths)
    held.store.append(k, v, TABLE, held.lengths, slots=slots)
    for got, was, new in zip(held.read(LENGTH), before, at_the_end.read(LENGTH), strict=True):
        np.put_along_axis(was, slots[..., None, None], new[:, :, -1:], 2)
        assert_close(got, was)


@pytest.mark.parametrize("name", ["f16", "int4"])
def test_rope_append_at_slots(name):
    held, at_the_end = Held(name, "given"), Held(name, "given")
    slots, (k, v), q = chosen_slots("given", 1)[..., 0], new_tokens(1, seed=20), normal(7, BATCH, 6, 1, HEAD_DIM)
    cos, sin = (angles.astype(np.float32) for angles in (np.cos([np.arange(32.0)]), np.sin([np.arange(32.0)])))
    before, turned = held.read(LENGTH), [np.full_like(q, np.nan) for _ in range(2)]
    at_the_end.store.rope_append(q, k, v, cos, sin, TABLE, held.lengths, turned[0])
    held.store.rope_append(q, k, v, cos, sin, TABLE, held.lengths, turned[1], slots=slots)
    assert_close(turned[1], turned[0])
    for got, was, new in zip(held.read(LENGTH), before, at_the_end.read(LENGTH), strict=True):
        np.put_along_axis(was, slots[..., None, None], new[:, :, -1:], 2)
        assert_close(got, was)


def test_slots_of_a_varlen_call():
    held, batch = Held("int8", "given"), Held("int8", "given")
    slots, (k, v) = chosen_slots("given", 1)[..., 0], new_tokens(1, seed=20)
    batch.store.append(k, v, TABLE, held.lengths, slots=slots)
    rows = (x.transpose(2, 1, 0, 3).copy() for x in (k, v))  # [1, G, N, D]
    held.store.append(*rows, TABLE, held.lengths, np.arange(BATCH + 1), slots=slots)
    for got, expected in zip(held.read(LENGTH), batch.read(LENGTH), strict=True):
        assert_close(got, expected)


# ---- errors

SLOTS = np.zeros((BATCH, KV_HEADS), np.int64)


@pytest.mark.parametrize(
    "slots, error, message",
    [
        (SLOTS.astype(np.int32), TypeError, r"slots: got int32 \[2, 3\], expected int64"),
        (SLOTS[:, :2].copy(), ValueError, r"slots: got .* expected int64 \[2, 3\]"),
        (SLOTS - 1, ValueError, "slots: got -1, expected 0 to 130"),
        (SLOTS + LENGTH, ValueError, "slots: got 131, expected 0 to 130"),
    ],
)
def test_bad_slots(slots, error, message):
    held = Held("f16", "given")
    with pytest.raises(error, match=message):
        held.store.append(*new_tokens(1), TABLE, held.lengths, slots=slots)


def test_slots_are_for_one_new_token():
    held = Held("f16", "given")
    with pytest.raises(ValueError, match="slots: got 2 new tokens for a sequence, expected 1"):
        held.store.append(*new_tokens(2), TABLE, held.lengths, slots=SLOTS)


def test_a_slot_in_a_page_that_is_gone():
    held, table = Held("f16", "given"), TABLE.copy()
    table[0, 0] = -1
    held.store.append(*new_tokens(1), table, held.lengths, slots=SLOTS + PAGE)
    with pytest.raises(ValueError, match="block_table: got page -1"):
        held.store.append(*new_tokens(1), table, held.lengths, slots=SLOTS)


KEEP = np.arange(4)[None, None].repeat(BATCH, 0).repeat(KV_HEADS, 1)


@pytest.mark.parametrize(
    "keep, error, message",
    [
        (KEEP.astype(np.int32), TypeError, r"keep: got int32 \[2, 3, 4\], expected int64 \[B, 3, n\]"),
        (KEEP[:, :2].copy(), ValueError, r"keep: got int64 \[2, 2, 4\], expected contiguous int64 \[B, 3, n\]"),
        (KEEP[:1], ValueError, "expected a row and a length for each of 1 sequences"),
        (KEEP[..., ::-1].copy(), ValueError, "keep: got slot 2 after 3, expected rising slots"),
        (KEEP // 2, ValueError, "keep: got slot 0 after 0"),
        (KEEP - 1, ValueError, "keep: got slot 0 after -1"),
        (KEEP - 2, ValueError, "keep: got slot -2"),
        (KEEP + 128, ValueError, "keep: got slot 131 after 130, expected rising slots from 0 to 130"),
        (KEEP[..., ::2], ValueError, "keep: got .* contiguous"),
    ],
)
def test_bad_keeps(keep, error, message):
    held = Held("f16", "given")
    before = held.read(LENGTH)
    with pytest.raises(error, match=message):
        held.store.compact(TABLE, held.lengths, keep)
    assert_close(held.read(LENGTH)[0], before[0])


def test_more_kept_than_held():
    held = Held("f16", "given")
    with pytest.raises(ValueError, match="keep: got slot 3 after 2, expected rising slots from 0 to 2, then -1"):
        held.store.compact(TABLE, np.array([LENGTH, 3]), KEEP)
    with pytest.raises(ValueError, match="num_held: got 145, expected 1 to 144"):
        held.store.compact(TABLE, np.array([LENGTH, 145]), KEEP)


def test_heads_that_share_a_scale_share_their_slots():
    held, keep, slots = Held("e4m3", "per_tensor"), KEEP.copy(), SLOTS.copy()
    keep[1, 2] += 1
    slots[1, 2] += 1
    with pytest.raises(ValueError, match="keep: got other slots for head 2 than for head 0"):
        held.store.compact(TABLE, held.lengths, keep)
    with pytest.raises(ValueError, match="slots: got other slots for head 2 than for head 0"):
        held.store.append(*new_tokens(1), TABLE, held.lengths, slots=slots)
