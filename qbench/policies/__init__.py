"""KV-cache policies: one small file each; importing this package registers all of them."""

from qbench.policies import (  # noqa: F401 - each registers its policies
    adakv,
    expected_attention,
    fastgen,
    h2o,
    infllm,
    keydiff,
    knorm,
    oracle,
    positions,
    pyramidkv,
    quest,
    scissorhands,
    snapkv,
    tova,
    yardsticks,
)
from qbench.policies.budget import Budget
from qbench.policies.policy import CachePolicy, LayerState, Observe, TokenKinds
from qbench.policies.registry import parse_policy, policy, policy_names

__all__ = ["Budget", "CachePolicy", "LayerState", "Observe", "TokenKinds", "parse_policy", "policy", "policy_names"]
