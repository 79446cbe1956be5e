"""Seeded lengths within their bounds, most of them short."""

import pytest

from qbench.throughput.workload import Workload
from quant.errors import InputError


def test_lengths_are_within_their_bounds_and_even_on_a_logarithmic_scale():
    jobs = Workload(2000, (4, 255), (1, 15)).jobs(50)
    prompts, new = [len(job.tokens) for job in jobs], [job.num_new for job in jobs]
    assert (min(prompts), max(prompts), min(new), max(new)) == (4, 255, 1, 15)
    # half below the geometric mean 32 of 4 and 256, or 4 of 1 and 16; of 2000 draws the standard deviation is 22
    assert abs(sum(length < 32 for length in prompts) - 1000) < 4 * 22
    assert abs(sum(length < 4 for length in new) - 1000) < 4 * 22
    assert {token for job in jobs for token in job.tokens} == set(range(50))


def test_a_seed_fixes_them_and_a_document_comes_first():
    one, same, other = (Workload(5, (3, 9), (1, 4), document=20, seed=seed).jobs(100) for seed in (1, 1, 2))
    assert one == same != other
    assert len({job.tokens[:20] for job in one}) == 1 and len({job.tokens for job in one}) == 5
    assert all(23 <= len(job.tokens) <= 29 for job in one)


def test_its_name_and_longest():
    workload = Workload(8, (3, 9), (1, 4), document=20)
    assert (workload.name, workload.longest) == ("8 x 3-9+1-4 after 20", 33)


@pytest.mark.parametrize("lengths", [(0, 4), (5, 4)])
@pytest.mark.parametrize("name", ["prompt", "new"])
def test_impossible_lengths_are_named(name, lengths):
    with pytest.raises(InputError, match=f"{name} is {lengths[0]},{lengths[1]}"):
        Workload(1, **({"prompt": (1, 2), "new": (1, 2)} | {name: lengths}))
