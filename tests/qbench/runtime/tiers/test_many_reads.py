"""Reads in flight together return the bytes of the file, in the order in which they were asked for."""

import os

import numpy as np
import pytest

from qbench.runtime.tiers.aligned import ALIGNMENT, DIRECT, aligned_buffer, open_for_reading
from qbench.runtime.tiers.many_reads import MOST_IN_FLIGHT, ManyReads

PAGES = 150


@pytest.fixture
def file(tmp_path):
    data = np.random.default_rng(0).integers(0, 256, PAGES * ALIGNMENT, dtype=np.uint8)
    path = tmp_path / "file"
    path.write_bytes(data.tobytes())
    descriptor = open_for_reading(path, DIRECT)
    yield descriptor, data
    os.close(descriptor)


@pytest.mark.parametrize("count", [1, 2, MOST_IN_FLIGHT, MOST_IN_FLIGHT + 1])
@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
def test_parts_follow_each_other_in_the_buffer(file, count, together):
    descriptor, data = file
    draw = np.random.default_rng(count)
    sizes = (draw.integers(1, 3, count) * ALIGNMENT).tolist()
    starts = (draw.integers(0, PAGES - 2, count) * ALIGNMENT).tolist()
    buffer = aligned_buffer(sum(sizes))
    reads = ManyReads(descriptor, buffer)
    if not together:
        reads.in_flight = 1
    reads.read(starts, sizes)
    parts = [data[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    assert (buffer == np.concatenate(parts)).all()


@pytest.mark.parametrize("count", [1, 3])
def test_a_part_beyond_the_end_is_an_error(file, count):
    descriptor, _ = file
    buffer = aligned_buffer(count * ALIGNMENT)
    starts = [number * ALIGNMENT for number in range(PAGES - count + 1, PAGES + 1)]
    with pytest.raises(OSError):
        ManyReads(descriptor, buffer).read(starts, [ALIGNMENT] * count)
