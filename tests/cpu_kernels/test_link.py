"""SharedLink: messages of one rank arrive at another, in pieces that go around the ring; sums keep their order."""

import threading

import numpy as np
import pytest
from support.waits import WAIT_S

from cpu_kernels import LINK_CHANNEL_BYTES, SharedLink

RING = 4096  # bytes: most messages here go around it
SIZES = (0, 1, 1023, 1024, 1025, 50_000)


def ends(num_ranks: int) -> list[SharedLink]:
    room = np.zeros(num_ranks**2 * (LINK_CHANNEL_BYTES + RING) + 64, np.uint8)
    start = -room.ctypes.data % 64
    memory = room[start : start + num_ranks**2 * (LINK_CHANNEL_BYTES + RING)]
    return [SharedLink(memory, num_ranks, rank) for rank in range(num_ranks)]


def on_threads(num_ranks, work) -> None:
    """work(end, rank) on a thread per rank; the first error is raised."""
    errors = []

    def run(end, rank):
        try:
            work(end, rank)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(end, rank), daemon=True) for rank, end in enumerate(ends(num_ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def values(rank: int, size: int) -> np.ndarray:
    return np.random.default_rng([rank, size]).standard_normal(size).astype(np.float32)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_messages_arrive_as_they_were_sent(num_ranks):
    def work(end, rank):
        others = [other for other in range(num_ranks) if other != rank]
        for size in SIZES * 3:
            arrived = {other: np.full(size, np.nan, np.float32) for other in others}
            end.begin([(other, values(rank, size)) for other in others], list(arrived.items()))
            assert end.move(WAIT_S) == -1
            for other in others:
                np.testing.assert_array_equal(arrived[other], values(other, size))

    on_threads(num_ranks, work)


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5])
def test_a_sum_is_that_of_the_ranks_in_their_order(num_ranks):
    def work(end, rank):
        for size in SIZES:
            x = values(rank, size)
            end.begin_sum(list(range(num_ranks)), x)
            assert end.move(WAIT_S) == -1
            expected = values(0, size)
            for other in range(1, num_ranks):
                expected = expected + values(other, size)
            np.testing.assert_array_equal(x, expected)

    on_threads(num_ranks, work)


def test_another_order_has_other_bits():
    """So the test above would see it."""
    parts = [values(rank, 50_000) for rank in range(3)]
    assert (parts[0] + parts[1] + parts[2] != parts[1] + parts[2] + parts[0]).any()


def test_a_rank_that_does_not_answer_is_named_and_may_come_later():
    first, second, _ = ends(3)
    x, y = np.ones(RING, np.float32), np.full(RING, 2, np.float32)  # 4 rings: the first waits for its sender, too
    first.begin_sum([0, 1], x)
    assert first.move(0.01) == 1
    second.begin_sum([0, 1], y)
    late = 0
    while late >= 0:
        late = max(first.move(0), second.move(0))
    np.testing.assert_array_equal(x, np.full(RING, 3))
    np.testing.assert_array_equal(y, x)


def floats(*shape):
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("sent", "received", "error", "message"),
    [
        ([(0, floats(2))], [], ValueError, "got rank 0, expected another of 2"),
        ([(2, floats(2))], [], ValueError, "got rank 2, expected another of 2"),
        ([(1, floats(2)), (1, floats(2))], [], ValueError, "got rank 1 twice"),
        ([], [(1, floats(4, 4)[:, :2])], ValueError, "contiguous"),
        ([], [(1, np.zeros(2))], TypeError, "expected float32"),
    ],
)
def test_impossible_transfers_are_refused(sent, received, error, message):
    with pytest.raises(error, match=message):
        ends(2)[0].begin(sent, received)


@pytest.mark.parametrize("ranks", [[], [1], [0, 0, 1]])
def test_a_sum_without_this_rank_or_with_it_twice(ranks):
    with pytest.raises(ValueError, match="expected 0, this process's, once"):
        ends(2)[0].begin_sum(ranks, floats(2))


@pytest.mark.parametrize(
    ("num_bytes", "num_ranks", "rank"), [(64, 2, 0), (4 * 4096 + 64, 2, 0), (4 * 4096, 2, 2), (4 * 4096, 0, 0)]
)
def test_memory_of_another_size(num_bytes, num_ranks, rank):
    room = np.zeros(num_bytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    with pytest.raises(ValueError, match=r"memory: got|num_ranks, rank: got"):
        SharedLink(room[start : start + num_bytes], num_ranks, rank)
