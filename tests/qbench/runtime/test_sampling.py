"""The distribution that tokens are drawn from, and the draws."""

import math

import pytest
import torch
from support.close import assert_close

from qbench.runtime.sampling import Sampler, Sampling, probabilities
from quant.errors import InputError

LOGITS = torch.tensor([0.3, 2.0, -1.0, 1.1, 0.0, 1.9])


def test_temperature_zero_is_greedy():
    assert Sampler(Sampling(temperature=0, top_p=0.1))(LOGITS) == 1


def test_temperature_divides_logits():
    got = probabilities(LOGITS, Sampling(temperature=0.5))
    assert_close(got, torch.softmax(2 * LOGITS.double(), 0), rtol=8 * 2**-53)


@pytest.mark.parametrize("top_p", [0.05, 0.3, 0.5, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p, seed):
    logits = 3 * torch.randn(50, generator=torch.Generator().manual_seed(seed))
    full = torch.softmax(logits.double(), 0)
    kept = probabilities(logits, Sampling(temperature=1, top_p=top_p))
    members = kept > 0
    mass = full[members].sum()
    assert mass >= top_p - 50 * 2**-53
    assert mass - full[members].min() < top_p, "one token fewer would do"
    assert members.all() or full[members].min() >= full[~members].max()
    assert_close(kept, torch.where(members, full / mass, 0), atol=50 * 2**-53)


def test_top_k_keeps_the_likeliest():
    kept = probabilities(LOGITS, Sampling(temperature=1, top_k=2))
    assert kept.nonzero().flatten().tolist() == [1, 5]
    assert_close(kept[[1, 5]], torch.softmax(LOGITS[[1, 5]].double(), 0), rtol=8 * 2**-53)


def test_top_p_counts_what_top_k_left():
    kept = probabilities(torch.zeros(10), Sampling(temperature=1, top_k=4, top_p=0.5))
    assert_close(kept[:2], [0.5, 0.5])
    assert kept[2:].sum() == 0


@pytest.mark.parametrize(
    "sampling",
    [Sampling(temperature=1, seed=3), Sampling(temperature=0.7, top_p=0.8, seed=4), Sampling(2.0, 0.95, 5, 5)],
    ids=["temperature 1", "top-p", "all three"],
)
def test_frequencies_follow_the_probabilities(sampling):
    num_draws = 3000
    sampler = Sampler(sampling)
    counts = torch.bincount(torch.tensor([sampler(LOGITS) for _ in range(num_draws)]), minlength=len(LOGITS))
    expected = probabilities(LOGITS, sampling) * num_draws
    possible = expected > 0
    assert counts[~possible].sum() == 0
    chi_square = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    freedom = int(possible.sum()) - 1
    # mean `freedom`, standard deviation sqrt(2 * freedom)
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)


def test_a_seed_fixes_the_draws():
    def draws(seed: int) -> list[int]:
        sampler = Sampler(Sampling(temperature=1, seed=seed))
        return [sampler(LOGITS) for _ in range(40)]

    assert draws(7) == draws(7)
    assert draws(7) != draws(8)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"top_p": 0.0}, "top_p is 0.0, expected more than 0"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"top_k": -1}, "top_k is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**63}, "seed is 9223372036854775808"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_values_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        Sampling(**arguments)
