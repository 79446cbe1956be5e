"""KLD of cache policies against `qbench eval`."""

import numpy as np
import pytest
import torch

from qbench.quality.kld.kld import divergence
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.search.policy_loss import policy_losses
from qbench.sources import open_source

POLICIES = ("full", "sinks:4+60", "h2o:budget=50%", "h2o:budget=25%")


def test_losses_match_the_evicting_model():
    source = open_source("ref:llama")
    tokens = np.random.default_rng(1).integers(0, 300, (2, 512))
    found = policy_losses(source, POLICIES, tokens, 1)
    assert list(found) == list(POLICIES[1:])
    shown = torch.from_numpy(tokens)
    reference = load_model(source, impl="reference")(shown).flatten(0, 1)
    for policy, loss in found.items():
        logits = load_model(source, RunOptions(policy=policy), impl="reference")(shown).flatten(0, 1)
        assert loss == pytest.approx(divergence(logits, reference, shown.flatten()).kld.mean(), rel=2**-14)
    assert 0 < found["h2o:budget=50%"] < found["h2o:budget=25%"]


def test_full_alone_costs_nothing_and_loads_nothing():
    assert policy_losses(None, ("full",), np.zeros((1, 8), np.int64), 1) == {}  # pyright: ignore[reportArgumentType]
