import pytest

from gpu_kernels.proof import timing


@pytest.mark.parametrize("bytes_per_call, sets", [(1, 256), (2, 200), (100, 4), (399, 2), (10**6, 2)])
def test_sets_exceed_the_l2(bytes_per_call, sets):
    assert timing.num_sets(bytes_per_call, l2_bytes=100) == sets


def test_median_of_an_even_number_is_the_middle():
    assert timing.median([3.0, 1.0, 9.0]) == 3.0 and timing.median([1.0, 2.0]) == 1.5
