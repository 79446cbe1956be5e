"""Routing in torch against the kernels' definition."""

import numpy as np
import pytest
import torch
from support.close import assert_close

from cpu_kernels.moe import route_ref
from qbench.runtime.layers.moe import Routing
from quant.models import MoeConfig

NUM_EXPERTS = 12
CONFIGS = {
    "softmax": MoeConfig(NUM_EXPERTS, 3, 8),
    "normed": MoeConfig(NUM_EXPERTS, 3, 8, norm_topk_prob=True),
    "groups": MoeConfig(NUM_EXPERTS, 4, 8, num_groups=4, groups_per_token=2, routed_scaling_factor=16.0),
    "sigmoid": MoeConfig(NUM_EXPERTS, 4, 8, num_groups=3, groups_per_token=2, best_of_group=2, scoring="sigmoid"),
    "bias": MoeConfig(NUM_EXPERTS, 4, 8, scoring="sigmoid", norm_topk_prob=True, has_choice_bias=True),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_equals_the_definition_of_the_kernels(config):
    logits = torch.randn(50, NUM_EXPERTS, generator=torch.Generator().manual_seed(4))
    bias = torch.linspace(-0.3, 0.4, NUM_EXPERTS) if config.has_choice_bias else None
    chosen, weights = Routing(config, bias).choose(logits)
    expected_chosen, expected_weights = route_ref(
        logits.numpy(),
        config.num_experts_per_token,
        config.scoring,
        config.num_groups,
        config.groups_per_token,
        config.best_of_group,
        None if bias is None else bias.numpy(),
        config.norm_topk_prob,
        config.routed_scaling_factor,
    )
    assert np.array_equal(chosen.numpy(), expected_chosen)
    # float32 sums of all experts' powers, each of a few roundings, and a quotient
    assert_close(weights.numpy(), expected_weights, rtol=(NUM_EXPERTS + 4) * 2**-24)
