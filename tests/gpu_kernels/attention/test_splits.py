import pytest

from gpu_kernels.attention.splits import MAX_SPLITS, num_kv_splits

H200 = 132  # multiprocessors


@pytest.mark.parametrize(
    "num_programs, num_tiles, slots, expected",
    [
        (1, 1, H200, 1),  # nothing to split
        (1, 0, H200, 1),
        (132, 64, H200, 1),  # the GPU is full
        (128, 128, 2 * H200, 2),  # half full: 256 of 264
        (256, 64, H200, 1),  # two rounds, 97 % full
        (66, 64, H200, 2),
        (1, 4096, H200, MAX_SPLITS),
    ],
)
def test_fills_the_gpu(num_programs, num_tiles, slots, expected):
    assert num_kv_splits(num_programs, num_tiles, slots) == expected


def test_never_more_parts_than_tiles():
    assert all(1 <= num_kv_splits(1, tiles, H200) <= max(1, tiles) for tiles in range(200))


def test_a_part_must_pay_for_its_start():
    """Four tiles could be four programs; each would do one tile's work and two tiles' of start."""
    assert num_kv_splits(H200, 4, H200) == 1
    assert num_kv_splits(H200 // 2, 4, H200) <= 2


def test_no_slots_are_refused():
    with pytest.raises(ValueError, match="got 1 programs over 0 slots"):
        num_kv_splits(1, 1, 0)
