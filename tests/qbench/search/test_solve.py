"""The program against every combination."""

from itertools import product

import numpy as np
import pytest

from qbench.search.solve import Option, solve


def random_sites(seed):
    rng = np.random.default_rng(seed)
    return [
        [Option(f"f{i}", "rtn", int(size), float(rng.exponential() / size)) for i, size in enumerate(sizes)]
        for sizes in rng.integers(1, 1000, (6, 4))
    ]


@pytest.mark.parametrize("seed", range(20))
def test_as_good_as_the_best_of_all_combinations(seed):
    sites = random_sites(seed)
    smallest = sum(min(option.size_bytes for option in options) for options in sites)
    budget = smallest + 100 * seed
    fitting = [mix for mix in product(*sites) if sum(option.size_bytes for option in mix) <= budget]
    best = min(sum(option.loss for option in mix) for mix in fitting)
    found = solve(sites, budget)
    assert [option in options for option, options in zip(found, sites, strict=True)] == [True] * len(sites)
    assert sum(option.size_bytes for option in found) <= budget
    assert sum(option.loss for option in found) <= best * (1 + 1e-4)


def test_no_mix_is_small_enough():
    with pytest.raises(ValueError, match="no mix takes 3 bytes"):
        solve([[Option("a", "rtn", 2, 0.0)], [Option("b", "rtn", 2, 0.0)]], 3)
