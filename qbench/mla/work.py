"""Bytes and operations of latent attention by each mode, counted from the sizes of a model."""

import math

from qbench.runtime.attention.mla_modes import MlaMode
from quant.models import MlaConfig, ModelConfig
from quant.present import present


def crossover_tokens(sizes: MlaConfig) -> float:
    """New tokens of a sequence above which fewer operations make all keys and values again; infinity if no number does.

    A pair of a query and a token costs absorbed attention 2 H (2 R + D_rope) operations and plain attention
    2 H (D_nope + D_rope + V); making one token's keys and values costs 2 H R (D_nope + V), which all queries
    of a forward pass share. So T > R (D_nope + V) / (2 R - D_nope - V), 171 of DeepSeek-V2's sizes.
    """
    made = sizes.qk_nope_head_dim + sizes.v_head_dim
    extra = 2 * sizes.kv_lora_rank - made  # per pair, the additional cost of absorbed attention
    return sizes.kv_lora_rank * made / extra if extra > 0 else math.inf


def forward_flop(config: ModelConfig, mode: MlaMode, held: int, new: int) -> dict[str, int]:
    """Operations (a multiply and an add are two) of one layer's attention for `new` tokens of a sequence that holds
    `held`, term by term.

    projections  of queries, of the latent and of the output; where W_UK and W_UV are parts of them, the larger ones
    up           keys and values out of latents, or queries and sums to meet them
    pairs        scores and weighted sums: each new token sees held tokens, those of its own pass before it, and itself
    source       DeepSeek-V2, arXiv:2405.04434, section 2.1
    """
    mla, heads, hidden = present(config.mla), config.num_heads, config.hidden_size
    nope, rope, value, rank = mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.v_head_dim, mla.kv_lora_rank
    query_input = mla.q_lora_rank or hidden
    kept, out = (rank, rank) if mode.materialises else (nope, value)  # of a head, as projections make and take them
    projected = query_input * heads * (kept + rope) + hidden * mla.latent_size + heads * out * hidden
    if mla.q_lora_rank:
        projected += hidden * mla.q_lora_rank
    made = heads * rank * (nope + value)
    if not mode.absorbs:
        made *= (held + new if mode.keeps_latents else new) / new  # a new token's share
    a_pair = heads * (2 * rank + rope if mode.absorbs else nope + rope + value)
    pairs = new * held + new * (new + 1) // 2
    return {
        "projections": 2 * new * projected,
        "up": 0 if mode.materialises else round(2 * new * made),
        "pairs": 2 * pairs * a_pair,
    }
