"""Distances of logits from textbook attention's, against sums by hand."""

import math

import pytest
import torch

from qbench.quality.attention_delta import DeltaSums, has_textbook
from qbench.run.options import RunOptions


def test_statistics_cover_all_tokens():
    """Each second distribution is (1/2, 1/2); the first ones are (1/4, 3/4), (1/2, 1/2) and (9/10, 1/10)."""
    sums, targets = DeltaSums(), torch.zeros(1, dtype=torch.int64)
    for logit in (-math.log(3.0), 0.0, math.log(9.0)):
        sums.add(torch.tensor([[logit, 0.0]]), torch.zeros(1, 2), targets)
    found = sums.statistics()
    klds = [-math.log(2 * math.sqrt(p * (1 - p))) for p in (0.25, 0.5, 0.9)]
    eps = 2.0**-23
    assert found.max_logit == pytest.approx(math.log(9.0), rel=eps)
    assert found.mean_kld == pytest.approx(sum(klds) / 3, rel=8 * eps) and found.num_tokens == 3
    assert found.max_kld == pytest.approx(klds[2], rel=8 * eps)
    assert found.same_top == 2 / 3  # ties go to the first one


def test_a_logit_that_is_not_finite_is_not_hidden():
    sums, targets = DeltaSums(), torch.zeros(2, dtype=torch.int64)
    sums.add(torch.tensor([[0.0, 1.0], [torch.inf, 0.0]]), torch.zeros(2, 2), targets)
    assert sums.statistics().max_logit == math.inf


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"attention": "textbook"}, False),
        ({"attention": "sdpa"}, True),
        ({"attention": "kernel"}, True),
        ({"attention": "kernel", "policy": "tova:8"}, True),
        ({"attention": "kernel", "policy": "sinks:4+20"}, False),
    ],
)
def test_whether_there_is_something_to_compare_with(options, expected):
    assert has_textbook(RunOptions(**options)) == expected
