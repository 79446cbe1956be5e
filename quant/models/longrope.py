"""LongRoPE: each rotary pair is slowed by a factor of its own, which was searched for; one set for long texts.

source   Ding et al. 2024, arXiv:2402.13753, section 3.2; which set runs, and the magnitude: Phi-3's own code
"""

import math


def magnitude(factor: float, original_context: int) -> float:
    """The factor of queries and of keys, if the context grew by `factor`."""
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original_context))
