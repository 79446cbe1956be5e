"""Mean KLD of the unrounded model under cache policies.

A policy acts between forward passes, on all layers of a token at once. So the whole model runs, in the chunks in which
`qbench eval` measures a policy, and not one layer after the other.
"""

from collections.abc import Sequence

import numpy as np
import torch

from qbench.run.cache_spec import FULL, CacheSpec
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.caches.policy.model_policy import policy_for
from qbench.runtime.caches.rules import Asked, check
from qbench.search.near_kld import NearKld
from quant.errors import InputError
from quant.models import ModelConfig
from quant.source import Source


def check_evicts(policies: Sequence[str], config: ModelConfig, num_tokens: int) -> None:
    """raises InputError for a policy that keeps all of so many tokens: its loss would be measured as 0"""
    for policy in policies:
        check(Asked(config, spec=CacheSpec(policy=policy), reads_once=True))
        made, layers = policy_for(CacheSpec(policy=policy).make_policy(), config, None), config.num_layers
        if policy != FULL and all(made.slots(num_tokens, layer, layers) >= num_tokens for layer in range(layers)):
            raise InputError(
                f"--policy {policy} keeps all of the {num_tokens} tokens of a window that the search measures, so its "
                "loss would look like 0; give a smaller budget, such as a share"
            )


def policy_losses(source: Source, policies: Sequence[str], tokens: np.ndarray, threads: int) -> dict[str, float]:
    """Policy -> KLD in nats over the windows `tokens` [W, T] int64. Peak memory is the whole model in float32."""
    wanted = [policy for policy in dict.fromkeys(policies) if policy != FULL]
    if not wanted:
        return {}
    reference = load_model(source, RunOptions(threads=threads), impl="reference")
    sums = dict.fromkeys(wanted, 0.0)
    for window in torch.from_numpy(tokens)[:, None]:  # [1, T]
        near = NearKld(reference(window).flatten(0, 1))
        for policy in wanted:
            sums[policy] += near.sum(reference.following(policy)(window).flatten(0, 1))
    return {policy: total / tokens.size for policy, total in sums.items()}
