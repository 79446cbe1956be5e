import pytest

from gpu_kernels.products.w8a8_gemm_configs import CONFIGS, candidates


@pytest.mark.parametrize("arch", CONFIGS)
def test_rows_are_ordered_and_cover_every_size(arch):
    largest = [row[0] for row in CONFIGS[arch]]
    assert largest[-1] is None and largest[:-1] == sorted(largest[:-1])
    assert all(row for _, row in CONFIGS[arch])


@pytest.mark.parametrize("num_tokens, row", [(1, 0), (16, 0), (17, 1), (64, 1), (65, 2), (100_000, 2)])
def test_candidates_by_tokens(num_tokens, row):
    assert candidates(90, num_tokens) == CONFIGS[90][row][1]


def test_unknown_architecture_lists_the_known():
    with pytest.raises(NotImplementedError, match=r"got sm_75, expected one of \['sm_80', 'sm_90', 'sm_100'\]"):
        candidates(75, 1)
