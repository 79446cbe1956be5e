"""The ways to attend by multi-head latent attention, equal except for rounding. They differ in the contents of the
cache and in the products that are formed.

    score of head h    q_h^T W_UK,h c + q_rope,h^T k_rope           c the latent of one token, k_rope its rotated key
    output of head h   W_UV,h (sum of weights c) = sum of weights (W_UV,h c)

    decompressed   the cache keeps every head's key W_UK c and value W_UV c: plain multi-head attention
    compressed     the cache keeps c and k_rope; keys and values of all tokens are made again at each step
    absorbed       as compressed, but W_UK joins the query and W_UV the output, so that no token's c is ever projected;
                   the parts of a query and of a row are side by side, and a score is one product
    elided         as absorbed, but the parts stay in place: a score is the sum of two products
    materialised   as elided, and W_UK is multiplied into the projection of queries and W_UV into that of outputs ahead

source   DeepSeek-V2, arXiv:2405.04434, section 2.1
"""

from dataclasses import dataclass
from functools import lru_cache

from qbench.runtime.attention.mla_costs import PlanCosts, compressed_terms, elided_terms, nanoseconds, plan_costs
from quant.errors import InputError
from quant.models import MlaConfig


@dataclass(frozen=True, slots=True)
class MlaMode:
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

MODES: dict[str, MlaMode] = {
    mode.name: mode
    for mode in (
        MlaMode(DECOMPRESSED, keeps_latents=False, absorbs=False),
        MlaMode(COMPRESSED, absorbs=False),
        MlaMode("absorbed", joins=True),
        MlaMode(ELIDED),
        MlaMode("materialised", materialises=True),
    )
}


def get_mode(name: str) -> MlaMode:
    """raises InputError for an unknown name"""
    if name not in MODES:
        raise InputError(f"MLA mode {name!r} is unknown; known: {', '.join(MODES)}")
    return MODES[name]


def choose_mode_in_torch(sizes: MlaConfig, new: int) -> MlaMode:
    """The way of fewest operations over a cache of latents, where torch attends, which keeps all scores of a turn.

    A pair of a query and a token costs absorbed attention 2 H (2 R + D_rope) operations and plain attention
    2 H (D_nope + D_rope + V); making one token's keys and values costs 2 H R (D_nope + V), which all queries share. So
    for new > R (D_nope + V) / (2 R - D_nope - V), 171 for DeepSeek-V2's sizes, they are made again.
    """
    made = sizes.qk_nope_head_dim + sizes.v_head_dim
    extra = 2 * sizes.kv_lora_rank - made  # per pair, the additional cost of absorbed attention
    return MODES[ELIDED if new * extra <= sizes.kv_lora_rank * made else COMPRESSED]


def choose_mode(sizes: MlaConfig, num_heads: int, held: int, new: int, window: int = 0) -> MlaMode:
    """The fastest way of cpu_kernels for `new` tokens of a sequence that holds `held`, by the cost of forward
    passes.
    """
    return mode_by(plan_costs(), sizes, num_heads, held, new, window)


@lru_cache(256)
def mode_by(costs: PlanCosts, sizes: MlaConfig, num_heads: int, held: int, new: int, window: int = 0) -> MlaMode:
    """`choose_mode` by other costs."""
    if new == 1:
        return MODES[ELIDED]
    few, many = (
        nanoseconds(terms(sizes, num_heads, held, new, window), costs) for terms in (elided_terms, compressed_terms)
    )
    return MODES[ELIDED if few <= many else COMPRESSED]
