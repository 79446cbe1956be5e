"""Cost of each mode of latent attention: counts from sizes and lengths, times from a fit to measurements."""

from dataclasses import dataclass

from quant.models import MlaConfig

# Heads, of one query or several, that cpu_kernels score at once, and that they sum at once.
HEADS_STEP, SUM_STEP = 16, 4


@dataclass(frozen=True, slots=True)
class PlanCosts:
    """Nanoseconds of one thread, of one unit of each term of `elided_terms` and `compressed_terms`."""

    absorbed: float
    paired: float
    calls: float
    made: float
    moved: float
    scored: float


# For a thread of a 2-core AVX-512 VNNI machine and bfloat16 weights. `qbench mla --fit FILE` gives them from the rows
# that
#     qbench mla MODEL --kv kv-f16 --mode elided --mode compressed --cpu-time --threads 1 --keep FILE --batch 1 ...
# keeps for ref:mla-moe (--ctx 0,128,512 --tokens 8 to 512, --ctx 896 --tokens 8 to 128), rand:deepseek-v2-lite (--ctx
# 0,512,2048 --tokens 32,64,128,192,256) and rand:deepseek-v3 (--ctx 512,1024 --tokens 64,128,192). The mode that they
# pick there takes at most 1.16 times as long as the faster one, 1.03 times for the first two. Where modes cross depends
# on ratios alone; new tokens, measured and by these costs:
#
#     tokens held      ref:mla-moe      deepseek-v2-lite      deepseek-v3
#     512              -, -             117, 105              167, 104
#     896 to 2048      -, -             136, 126              167, 117
COSTS = PlanCosts(absorbed=0.0377, paired=0.0323, calls=225700, made=0.0101, moved=3.045, scored=0.0469)

_measured: PlanCosts | None = None  # on this machine


def use_costs(measured: PlanCosts | None) -> None:
    """Plans are chosen by these from now on; None: by COSTS."""
    global _measured
    _measured = measured


def plan_costs() -> PlanCosts:
    return COSTS if _measured is None else _measured


def elided_terms(sizes: MlaConfig, num_heads: int, held: int, new: int, window: int = 0) -> dict[str, int]:
    """Terms of `new` tokens of a sequence that holds `held`, by absorbed attention in cpu_kernels.

    absorbed   multiply-adds of each head's W_UK with queries, and of W_UV with sums
    paired     multiply-adds of queries and rows: scores of whole registers of heads, sums of whole tiles
    """
    rank, made = sizes.kv_lora_rank, sizes.qk_nope_head_dim + sizes.v_head_dim
    together = min(new, max(1, HEADS_STEP // num_heads))  # queries that share a register
    heads = together * num_heads
    of_a_row = _whole(heads, HEADS_STEP) * sizes.latent_size + _whole(heads, SUM_STEP) * rank
    pairs = seen_pairs(held, new, window)
    return {"absorbed": new * num_heads * made * rank, "paired": pairs * of_a_row // together}


def compressed_terms(sizes: MlaConfig, num_heads: int, held: int, new: int, window: int = 0) -> dict[str, int]:
    """The same by keys and values that are made again, in torch.

    calls    1: the cost that does not depend on the number of tokens
    made     multiply-adds that make keys and values
    moved    numbers of keys and values as they are put side by side
    scored   multiply-adds of queries with keys and of weights with values, hidden ones too, values as wide as keys
    """
    tokens = held + new if not window else min(held + new, window + new - 1)
    made = sizes.qk_nope_head_dim + sizes.v_head_dim
    return {
        "calls": 1,
        "made": tokens * num_heads * sizes.kv_lora_rank * made,
        "moved": tokens * num_heads * (sizes.qk_head_dim + sizes.v_head_dim),
        "scored": 2 * new * tokens * num_heads * sizes.qk_head_dim,
    }


def seen_pairs(held: int, new: int, window: int = 0) -> int:
    """Queries times the tokens that each sees, itself among them."""
    if not window:
        return new * held + new * (new + 1) // 2
    growing = min(max(window - held, 0), new)  # queries that see all before them, and fewer than the window
    return growing * held + growing * (growing + 1) // 2 + (new - growing) * window


def nanoseconds(terms: dict[str, int], costs: PlanCosts) -> float:
    return sum(count * getattr(costs, name) for name, count in terms.items())


def _whole(count: int, step: int) -> int:
    return -(-count // step) * step
