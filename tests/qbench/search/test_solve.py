"""The program against every combination."""

from itertools import product

import numpy as np
import pytest

from qbench.search.solve import Option, fastest, largest, shared, solve


def random_sites(seed):
    rng = np.random.default_rng(seed)
    return [
        [
            Option(f"f{i}", "rtn", int(size), float(rng.exponential() / size), float(rng.normal()))
            for i, size in enumerate(sizes)
        ]
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


@pytest.mark.parametrize("seed", range(10))
def test_within_a_time_too(seed):
    sites = random_sites(seed)
    budget = sum(max(option.size_bytes for option in options) for options in sites) // 2
    fitting = [mix for mix in product(*sites) if sum(option.size_bytes for option in mix) <= budget]
    times = sorted(sum(option.seconds for option in mix) for mix in fitting)
    assert fastest(sites, budget) == pytest.approx(times[0], rel=1e-4)
    limit = (times[len(times) // 100] + times[len(times) // 100 + 1]) / 2  # one mix of a hundred is so fast
    fast = [mix for mix in fitting if sum(option.seconds for option in mix) <= limit]
    found = solve(sites, budget, limit)
    assert sum(option.seconds for option in found) <= limit
    assert sum(option.loss for option in found) <= min(sum(option.loss for option in mix) for mix in fast) * (1 + 1e-4)
    most = max(sum(option.size_bytes for option in mix) for mix in fast)
    assert most * (1 - 1e-3) <= largest(sites, budget, limit) <= most
    with pytest.raises(ValueError, match="no mix takes"):
        solve(sites, budget, times[0] - 0.1)


def test_no_mix_is_small_enough():
    with pytest.raises(ValueError, match="no mix takes 3 bytes"):
        solve([[Option("a", "rtn", 2, 0.0)], [Option("b", "rtn", 2, 0.0)]], 3)


def test_sites_that_share_a_format_each_take_their_best_method():
    first = [Option("w2", "rtn", 2, 9.0, 1.0), Option("w2", "gptq", 2, 5.0, 1.0), Option("w4", "rtn", 4, 1.0, 2.0)]
    other = [Option("w2", "rtn", 20, 3.0, 4.0), Option("w2", "gptq", 20, 4.0, 4.0), Option("w4", "gptq", 40, 0.5, 3.0)]
    found = {option.format: option for option in shared([first, other])}
    assert found["w2"] == Option("w2", "gptq", 22, 8.0, 5.0, (first[1], other[0]))
    assert found["w4"] == Option("w4", "rtn", 44, 1.5, 5.0, (first[2], other[2]))
