"""KV-cache policies: one small file each; importing this package registers all of them."""

from qbench.policies import (  # noqa: F401 - each registers its policies
    expected_attention,
    h2o,
    keydiff,
    knorm,
    positions,
    pyramidkv,
    scissorhands,
    snapkv,
    tova,
    yardsticks,
)
from qbench.policies.budget import Budget
from qbench.policies.policy import CachePolicy, LayerState, Observe
from qbench.policies.registry import parse_policy, policy, policy_names

__all__ = ["Budget", "CachePolicy", "LayerState", "Observe", "parse_policy", "policy", "policy_names"]
