"""The ways to attend by multi-head latent attention, equal but for rounding: what a cache keeps, and what is formed.

    score of head h    q_h^T W_UK,h c + q_rope,h^T k_rope           c the latent of one token, k_rope its rotated key
    output of head h   W_UV,h (sum of weights c) = sum of weights (W_UV,h c)

    decompressed   the cache keeps every head's key W_UK c and value W_UV c: plain multi-head attention
    compressed     the cache keeps c and k_rope; keys and values of all tokens are made anew at each step
    absorbed       as compressed, but W_UK joins the query and W_UV the output, so that no token's c is ever projected;
                   the parts of a query and of a row stand side by side, and a score is one product
    elided         as absorbed, but the parts lie where they were made: a score is the sum of two products
    materialised   as elided, and W_UK is multiplied into the projection of queries and W_UV into that of outputs ahead

source   DeepSeek-V2, arXiv:2405.04434, section 2.1
"""

import math
from dataclasses import dataclass

from quant.errors import InputError
from quant.models import MlaConfig


@dataclass(frozen=True, slots=True)
class LatentPlan:
    """keeps_latents  whether the cache keeps one row for all heads, or every head's key and value
    absorbs        whether W_UK and W_UV meet queries and outputs instead of each token
    joins          whether the parts of a score are put side by side first
    materialises   whether W_UK and W_UV are parts of larger projections
    """

    name: str
    keeps_latents: bool = True
    absorbs: bool = True
    joins: bool = False
    materialises: bool = False


DECOMPRESSED, COMPRESSED, ELIDED = "decompressed", "compressed", "elided"

PLANS: dict[str, LatentPlan] = {
    plan.name: plan
    for plan in (
        LatentPlan(DECOMPRESSED, keeps_latents=False, absorbs=False),
        LatentPlan(COMPRESSED, absorbs=False),
        LatentPlan("absorbed", joins=True),
        LatentPlan(ELIDED),
        LatentPlan("materialised", materialises=True),
    )
}


def get_plan(name: str) -> LatentPlan:
    """raises InputError for an unknown name"""
    if name not in PLANS:
        raise InputError(f"MLA plan {name!r} is unknown; known: {', '.join(PLANS)}")
    return PLANS[name]


# A pair of a query and a token costs absorbed attention 2 H (2 R + D_rope) operations and plain attention
# 2 H (D_nope + D_rope + V); making one token's keys and values costs 2 H R (D_nope + V), which all queries of a pass
# share. So for
#     T > R (D_nope + V) / (2 R - D_nope - V)    new tokens, 171 of DeepSeek-V2's sizes,
# fewer operations are needed to make all keys and values anew. What is measured is so many times as many, on a 2-core
# AVX-512 VNNI machine: 0.66 to 0.75 of one thread's processor time, and of the time of two threads, idle, 0.87 and 1.09
# with 512 tokens held, 1.14 and 1.43 with 4096 (batches of 1 and 4, in results/mla), by
#     qbench mla --kv kv-f16 [--plan elided --plan compressed --tokens 64,128,192,256 --threads 1 --cpu-time]
CROSSOVER = 1.0


def crossover_tokens(sizes: MlaConfig) -> float:
    """New tokens of a sequence above which fewer operations make all keys and values anew; infinity if none do."""
    made = sizes.qk_nope_head_dim + sizes.v_head_dim
    extra = 2 * sizes.kv_lora_rank - made  # of one pair, what is absorbed costs more
    return sizes.kv_lora_rank * made / extra if extra > 0 else math.inf


def choose_plan(sizes: MlaConfig, num_tokens: int) -> LatentPlan:
    """The fastest way over a cache of latents for so many new tokens of a sequence."""
    return PLANS[ELIDED if num_tokens <= CROSSOVER * crossover_tokens(sizes) else COMPRESSED]
