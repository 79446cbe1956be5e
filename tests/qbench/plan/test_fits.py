from random import Random

import pytest

from qbench.plan.fits import largest, largest_batch, largest_contexts


@pytest.mark.parametrize("limit", [1, 2, 3, 63, 131])
def test_largest_matches_counting(limit):
    for bound in range(limit + 2):
        counted = max((n for n in range(1, limit + 1) if n <= bound), default=0)
        assert largest(lambda n, bound=bound: n <= bound, limit) == counted


def total(context: int, batch: int) -> int:
    return 1000 + batch * (7 * context + 31)


def test_every_row_fits_and_one_more_token_fails():
    rng = Random(0)
    for _ in range(50):
        memory, limit = rng.randrange(900, 20_000), rng.randrange(1, 500)
        rows = largest_contexts(total, memory, limit)
        for row in rows:
            assert row.total_bytes == total(row.context, row.batch) <= memory
            assert row.context == limit or total(row.context + 1, row.batch) > memory
            assert row.tokens == row.batch * row.context
        following = 2 ** len(rows)
        assert following > 128 or total(1, following) > memory


def test_largest_batch():
    assert largest_batch(total, 1000 + 3 * (7 * 10 + 31), 10) == 3
    assert largest_batch(total, 1000 + 3 * (7 * 10 + 31) - 1, 10) == 2
    assert largest_batch(total, 1000, 10) == 0
