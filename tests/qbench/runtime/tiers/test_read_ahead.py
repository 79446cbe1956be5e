"""Slots that are read before they are asked for have the bytes of the file; whatever is not there is said so."""

import numpy as np
import pytest

from qbench.runtime.tiers.read_ahead import MOST_SLOTS
from qbench.runtime.tiers.spill_file import SpillFile

SLOT, COUNT = 5000, 80  # bytes, slots


@pytest.fixture
def spilled(tmp_path):
    data = np.random.default_rng(0).integers(0, 256, (COUNT, SLOT), dtype=np.uint8)
    file = SpillFile(tmp_path, SLOT, 1 << 20)
    for slot, row in enumerate(data):
        file.write(slot, row)
    ahead = file.read_ahead()
    if not ahead.most:
        pytest.skip("this file system reads through the page cache")
    yield ahead, data
    ahead.forget()
    file.close()


def taken(ahead, data, slots) -> list[bool]:
    begun, rows = ahead.take(slots)
    expected = data[[slot for slot, is_there in zip(slots, begun, strict=True) if is_there]]
    assert (rows[:, :SLOT] == expected).all() and len(rows) == len(expected)
    return begun


def test_slots_are_taken_in_any_order_and_once(spilled):
    ahead, data = spilled
    ahead.begin([7, 3, 11, 60])
    assert taken(ahead, data, [60, 8, 3]) == [True, False, True]
    assert taken(ahead, data, [60, 11]) == [False, True]
    assert ahead.num_unused == 0
    ahead.begin([3, 4])
    assert ahead.num_unused == 1  # 7
    assert taken(ahead, data, [7, 4]) == [False, True]


def test_no_more_are_read_than_there_is_memory_for(spilled):
    ahead, data = spilled
    ahead.begin(list(range(COUNT)))
    assert taken(ahead, data, list(range(COUNT))) == [slot < MOST_SLOTS for slot in range(COUNT)]


def test_slots_that_change_are_forgotten(spilled):
    ahead, data = spilled
    ahead.begin([1, 2, 3])
    ahead.forget([2])
    assert taken(ahead, data, [1, 2]) == [True, False]
    ahead.forget()
    assert taken(ahead, data, [3]) == [False] and ahead.num_unused == 2


def test_a_slot_beyond_the_end_is_not_there(spilled):
    ahead, data = spilled
    ahead.begin([COUNT - 1, COUNT, 0])
    assert taken(ahead, data, [COUNT, COUNT - 1, 0]) == [False, True, True]
