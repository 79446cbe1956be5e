"""YaRN: rotary waves are kept, slowed or blended by how often they turn, and the softmax is sharpened.

source   Peng et al. 2023, arXiv:2309.00071, sections 3.2 and 3.4
"""

import math

import numpy as np


def divisors(
    theta: float, head_dim: int, factor: float, original_context: int, beta_fast: float, beta_slow: float
) -> np.ndarray:
    """1 for pairs that turn more than `beta_fast` times in the original context, `factor` below `beta_slow` turns.

    Between the two pairs at which that happens, each rounded outwards, the frequencies are blended linearly.
    returns  [head_dim // 2] float64
    """

    def pair_that_turns(times: float) -> float:
        return head_dim * math.log(original_context / (times * 2 * math.pi)) / (2 * math.log(theta))

    first = max(math.floor(pair_that_turns(beta_fast)), 0)
    last = min(math.ceil(pair_that_turns(beta_slow)), head_dim - 1)
    steps = max(last - first, 0.001)  # a step at one pair instead of a ramp, as published implementations have it
    slowed = np.clip((np.arange(head_dim // 2) - first) / steps, 0.0, 1.0)
    return 1 / (1 - slowed + slowed / factor)


def magnitude(factor: float, weight: float = 1.0) -> float:
    """The factor of queries and of keys: eq. 22 for weight 1"""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def long_magnitude(factor: float, original_context: int) -> float:
    """The factor of queries and of keys, if the context grew by `factor`: of LongRoPE.

    source   Ding et al. 2024, arXiv:2402.13753, section 3.2; the formula is that of Phi-3's own code
    """
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original_context))
