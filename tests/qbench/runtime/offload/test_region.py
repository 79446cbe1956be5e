"""Memory of a region moves from unit to unit: bytes are those that were written, no more is held than was counted."""

import errno

import numpy as np
import pytest

from qbench.runtime.offload import region as regions
from qbench.runtime.offload.region import HUGE_PAGE, Region, can_move, move_pages, reserve
from qbench.runtime.offload.units import PAGE, Unit

SIZES = [3 * HUGE_PAGE, 5 * HUGE_PAGE - PAGE, HUGE_PAGE // 2, 90 * PAGE, 200 * PAGE, 2 * HUGE_PAGE]
UNITS = [Unit(str(number), (), size) for number, size in enumerate(SIZES)]


@pytest.fixture(params=[True, False], ids=["moved", "cleared"])
def region(request, monkeypatch):
    if request.param and not can_move():
        pytest.skip("this system does not move pages")
    monkeypatch.setattr("qbench.runtime.offload.region.can_move", lambda: request.param)
    return Region(UNITS)


def num_resident(region: Region) -> int:
    """Bytes of the region that are in memory: pages of its map, as the kernel counts them."""
    first = region._bytes.ctypes.data
    last, found, inside = first + region._bytes.size, 0, False
    with open("/proc/self/smaps", encoding="ascii") as file:
        for line in file:
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                low, high = (int(part, 16) for part in words[0].split("-"))
                inside = first <= low and high <= last
            elif inside and words[0] == "Rss:":
                found += int(words[1]) << 10
    return found


@pytest.mark.parametrize("seed", range(3))
def test_units_that_come_and_go_keep_their_bytes(region, seed):
    draw = np.random.default_rng(seed)
    there: dict[str, int] = {}
    for step in range(120):
        name = UNITS[draw.integers(len(UNITS))].name
        if name in there:
            assert (region.view(name) == there.pop(name)).all()
            region.recycle(name) if draw.random() < 0.8 else region.drop(name)
        else:
            held, half = region.held_bytes(name), region.held_bytes(name) // 2 // PAGE * PAGE
            for start, size in ((0, half), (half, held - half)):
                region.refill(name, start, size)
                region.view(name)[start : start + size] = step
            there[name] = step
        region.trim(int(draw.integers(0, 8)) * HUGE_PAGE)
        assert all((region.view(name) == value).all() for name, value in there.items())
    counted = sum(region.held_bytes(name) for name in there) + region.spare_bytes
    assert num_resident(region) <= counted + HUGE_PAGE, "a huge page of small units is whole"
    region.trim(0)
    assert region.spare_bytes == 0


def test_memory_of_one_unit_is_that_of_the_next():
    if not can_move():
        pytest.skip("this system does not move pages")
    region = Region(UNITS)
    region.view("0")[:] = 7
    region.recycle("0")
    region.refill("1", 0, 2 * HUGE_PAGE)
    assert (region.view("1")[: 2 * HUGE_PAGE] == 7).all(), "no page was cleared"
    assert not region.view("1")[2 * HUGE_PAGE :].any() and not region.view("0")[: 2 * HUGE_PAGE].any()
    assert region.spare_bytes == HUGE_PAGE


def test_a_move_that_the_system_refuses_is_an_error():
    if not can_move():
        pytest.skip("this system does not move pages")
    memory, _ = reserve(4 * PAGE)
    with pytest.raises(OSError) as error:
        move_pages(np.frombuffer(memory, dtype=np.uint8), 0, 1, PAGE)
    assert error.value.errno == errno.EINVAL


def test_a_system_without_such_moves_is_found_out(monkeypatch):
    def refuse(*_):
        raise OSError(errno.EINVAL, "no")

    monkeypatch.setattr(regions, "move_pages", refuse)
    assert not regions.can_move.__wrapped__()
