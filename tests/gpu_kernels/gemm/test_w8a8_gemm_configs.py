import pytest

from gpu_kernels.gemm.w8a8_gemm_configs import CONFIGS, row


@pytest.mark.parametrize("arch", CONFIGS)
def test_rows_are_ordered_and_cover_every_size(arch):
    largest = [each[0] for each in CONFIGS[arch]]
    assert largest[-1] is None and largest[:-1] == sorted(largest[:-1])
    assert all(candidates for _, candidates in CONFIGS[arch])


@pytest.mark.parametrize("num_tokens, index", [(1, 0), (16, 0), (17, 1), (64, 1), (65, 2), (100_000, 2)])
def test_candidates_by_tokens(num_tokens, index):
    assert row(90, num_tokens)[1] == CONFIGS[90][index][1]


def test_unknown_architecture_lists_the_known():
    with pytest.raises(NotImplementedError, match=r"got sm_75, expected one of \['sm_80', 'sm_90', 'sm_100'\]"):
        row(75, 1)
