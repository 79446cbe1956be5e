"""Against the float64 divergence that evaluations report."""

import pytest
import torch

from qbench.quality.kld.kld import divergence
from qbench.search.near_kld import NearKld

EPS = 2.0**-24  # of float32


@pytest.mark.parametrize("distance", [1e-3, 1e-2, 1.0, 10.0])
def test_it_is_the_divergence(distance):
    seeded = torch.Generator().manual_seed(5)
    reference = 4 * torch.randn((40, 2048), generator=seeded)
    logits = reference + 3 + distance * torch.randn((40, 2048), generator=seeded)  # a shift of all changes nothing
    expected = divergence(logits, reference, torch.zeros(40, dtype=torch.int64)).kld.sum()
    # The terms of first order cancel, except for a rounding of EPS * distance; the divergence is distance**2 / 2.
    assert NearKld(reference).sum(logits) == pytest.approx(expected, rel=2048**0.5 * EPS * (1 + 2 / distance))


def test_the_same_logits_do_not_diverge():
    reference = torch.randn((3, 64), generator=torch.Generator().manual_seed(5))
    assert NearKld(reference).sum(reference.clone()) == 0


def test_far_logits_stay_finite_and_bad_ones_stay_bad():
    reference = torch.zeros((1, 8))
    far = reference.clone()
    far[0, 0] = 1000
    assert 50 < NearKld(reference).sum(far) < 1000
    far[0, 0] = torch.nan
    assert NearKld(reference).sum(far) != NearKld(reference).sum(far)
