"""Blocks that a decode step chooses come from a file into pages; whatever cannot be done here is said so."""

import os

import numpy as np
import pytest

from cpu_kernels import ChosenBlocks, KVStore

LAYERS, BLOCKS, PAGES, STRIDE = 2, 6, 4, 8192
DECAY = -1.0


class Tier:
    """Blocks of LAYERS layers, all in a file. All bytes of a block are its place."""

    def __init__(self, folder, num_ahead: int = 4, num_at_once: int = 2) -> None:
        self.store = KVStore("f32", PAGES, 16, 1, 32)
        self.page = np.full((LAYERS, BLOCKS), -1, np.int32)
        self.rank, self.pins = np.zeros(self.page.size), np.zeros(self.page.size, np.int32)
        self.changed, self.on_disk = np.zeros(self.page.size, bool), np.ones(self.page.size, bool)
        self.job, self.owner = np.zeros(self.page.size, int), np.full(PAGES, -1)
        self.has_decayed = np.zeros(LAYERS, bool)
        self.path = folder / "blocks"
        self.path.write_bytes(b"".join(bytes([place]) * STRIDE for place in range(self.page.size)))
        try:
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
            self.blocks = ChosenBlocks(self.store, self.arrays, DECAY, self.descriptor, STRIDE, num_ahead, num_at_once)
        except OSError:
            pytest.skip("this system takes no several reads at once")
        self.blocks.first_job = 1

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.page, self.rank, self.pins, self.changed, self.on_disk, self.job, self.owner, self.has_decayed

    def bring(self, layer: int, *blocks: int) -> bool:
        return self.blocks.bring(layer, np.array(blocks, dtype=int))

    def follow(self, chosen, received, **options) -> None:
        """received [layers, n] of blocks of one page after no first page"""
        mass = np.zeros((LAYERS, 1, 16 * len(received[0])), np.float32)
        mass[:, 0, ::16] = received
        self.blocks.follow(np.array(chosen), mass, 0, 1, **options)

    def held(self) -> dict[int, int]:
        """Place -> the value of all bytes of its page"""
        found = {}
        for place, page in enumerate(self.page.ravel()):
            if page >= 0:
                data = np.empty(self.store.page_bytes, np.uint8)
                self.store.read_page(page, data)
                assert self.owner[page] == place and (data == data[0]).all()
                found[place] = int(data[0])
        assert len(found) == (self.owner >= 0).sum()
        return found


@pytest.fixture
def tier(tmp_path):
    tier = Tier(tmp_path)
    yield tier
    os.close(tier.descriptor)


def test_blocks_come_from_the_file_and_the_lowest_ranks_make_room(tier):
    assert tier.bring(0, 0, 1, 4) and tier.held() == {0: 0, 1: 1, 4: 4}
    tier.rank[[0, 1, 4]] = 3, 1, 2
    tier.pins[1] = 1
    assert tier.bring(1, 0, 5) and tier.held() == {0: 0, 1: 1, 6: 6, 11: 11}
    tier.rank[[0, 6, 11]] = 0
    assert tier.bring(0, 0, 3), "a block that is asked for stays"
    assert tier.held() == {0: 0, 1: 1, 3: 3, 6: 6}, "of equal ranks the first page"
    assert tier.blocks.take_counts() == (6, 0, 0) and tier.blocks.take_counts() == (0, 0, 0)


def test_ranks_decay_once_per_choice_and_add_attention(tier):
    tier.bring(0, 0)
    tier.bring(0, 0, 1)
    assert tier.rank[:BLOCKS].tolist() == [DECAY] * BLOCKS and not tier.rank[BLOCKS:].any()
    tier.follow([[0, 1], [2, 3]], [[0.5, 0], [2, 4]])
    expected = np.full((LAYERS, BLOCKS), DECAY)
    for layer, block, received in [(0, 0, 0.5), (0, 1, 1e-30), (1, 2, 2), (1, 3, 4)]:
        expected[layer, block] = np.logaddexp(DECAY, np.log(received))
    np.testing.assert_allclose(tier.rank.reshape(expected.shape), expected, rtol=1e-14)
    tier.bring(0, 0)
    assert tier.rank[0] == pytest.approx(expected[0, 0] + DECAY)


def scores(*values: float) -> np.ndarray:
    return np.array([values], np.float32)


def test_likely_blocks_are_on_their_way(tier):
    """Scores that rise go on to rise. A guess is not read again, and is dropped when its memory is needed."""
    rising = (0.5, scores(0, 0, 0, 0), scores(0, 4, 3, 0, 5))
    falling = (0.5, scores(0, 9, 0, 0), scores(1, 6, 0, 0, 0))  # 1.5, 4.5, 0
    tier.follow([[0], [0]], [[1], [1]], scores=[rising, falling], more=1)
    assert tier.bring(0, 1, 2, 4), "1 with 6 and 4 with 5 were likely"
    assert tier.blocks.take_counts() == (3, 2, 0) and tier.held() == {1: 1, 2: 2, 4: 4}
    tier.follow([[1], [1]], [[1], [1]], scores=[rising, (0.5, scores(), scores(7, 8, 6))], more=1)
    assert tier.blocks.take_counts() == (0, 0, 0), "0 and 1 of layer 1 are likely again"
    tier.follow([[1], [1]], [[1], [1]], scores=[rising, (0.5, scores(), scores(7, 6, 8))], more=1)
    assert tier.blocks.take_counts() == (0, 0, 0), "1 stays although it is likely no more"
    tier.follow([[1], [1]], [[1], [1]], scores=[rising, (0.5, scores(), scores(7, 6, 8, 9, 9.5))], more=2)
    assert tier.blocks.take_counts() == (0, 0, 1), "1 made room for 3 or 4"
    tier.blocks.forget(np.array([BLOCKS]))
    assert tier.blocks.take_counts() == (0, 0, 1)
    assert tier.bring(1, 0, 2) and tier.held().items() >= {6: 6, 8: 8}.items()
    assert tier.blocks.take_counts() == (2, 1, 0)
    tier.blocks.forget()
    assert tier.blocks.take_counts() == (0, 0, 2)


@pytest.mark.parametrize("name, value", [("on_disk", False), ("job", 1)])
def test_a_block_that_is_not_in_the_file_is_left_to_the_caller(tier, name, value):
    tier.bring(0, 0, 1, 2, 3)
    getattr(tier, name)[5] = value
    assert not tier.bring(0, 4, 5) and set(tier.held()) == {0, 1, 2, 3}
    assert tier.bring(0, 4) and set(tier.held()) == {1, 2, 3, 4}


@pytest.mark.parametrize("name, value", [("changed", True), ("on_disk", False), ("job", 1), ("pins", 1)])
def test_a_block_that_cannot_make_room_yet_is_left_to_the_caller(tier, name, value):
    tier.bring(0, 0, 1, 2, 3)
    getattr(tier, name)[[0, 1, 2, 3]] = value
    assert not tier.bring(0, 4) and set(tier.held()) == {0, 1, 2, 3}


def test_a_read_that_fails_leaves_no_page_half_filled(tier):
    tier.bring(0, 0, 1, 2, 3)
    os.truncate(tier.path, 5 * STRIDE)
    with pytest.raises(OSError, match="Input/output error"):
        tier.bring(0, 4, 5)
    assert set(tier.held()) == {2, 3}
    assert tier.bring(0, 4) and tier.held() == {2: 2, 3: 3, 4: 4}


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda t: t.bring(2, 0), ValueError, "layer: got 2, expected less than 2"),
        (lambda t: t.bring(0, 6), ValueError, "blocks: got 6, expected 0 to 5"),
        (lambda t: t.blocks.bring(0, np.zeros(1, np.int32)), TypeError, r"blocks: got int32 \[1\], expected int64"),
        (lambda t: t.follow([[0]], [[1]]), ValueError, "of 2 layers"),
        (lambda t: t.follow([[0, 1], [0, 1]], [[1], [1]]), ValueError, "expected that these match"),
        (lambda t: t.follow([[6], [0]], [[1], [1]]), ValueError, "chosen: got 6, expected 0 to 5"),
        (lambda t: t.follow([[0], [0]], [[1], [1]], more=-1), ValueError, "expected that these match"),
        (lambda t: t.follow([[0], [0]], [[1], [1]], scores=[]), ValueError, "expected that these match"),
        (
            lambda t: t.follow([[0], [0]], [[1], [1]], scores=[(0.5, scores(), scores(*range(7)))] * 2),
            ValueError,
            r"scores: got float32 \[1, 7\], expected \[1, n\] of at most 6 blocks",
        ),
        (
            lambda t: ChosenBlocks(t.store, t.arrays, 0.0, 0, 100, 4, 2),
            ValueError,
            "stride: got 100, expected a page's",
        ),
        (lambda t: ChosenBlocks(t.store, t.arrays, 0.0, 0, STRIDE, 4, 0), ValueError, "num_at_once: got 0, expected 1"),
        (
            lambda t: ChosenBlocks(t.store, (*t.arrays[:6], np.zeros(3, int), t.has_decayed), 0.0, 0, STRIDE, 4, 2),
            ValueError,
            r"owner: got int64 \[3\], expected numbers \[4\]",
        ),
        (lambda t: ChosenBlocks(1, t.arrays, 0.0, 0, STRIDE, 4, 2), TypeError, "store: expected a KVStore"),
    ],
    ids=range(13),
)
def test_bad_arguments(tier, call, error, message):
    with pytest.raises(error, match=message):
        call(tier)
