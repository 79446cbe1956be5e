"""Sampling in Triton; the maths is in sample.py.

Split    one program a row. It walks the row in blocks: once for the largest logit, then once for each step of a cut's
         search, then twice for the draw. A row of 128,256 float32 is 513 KB: after the first walk it comes from the L2.
Search   floats are ordered as the integers of their bits are (negative ones reversed), so a range of 2**32 is narrowed
         to one by 16 walks of three thresholds each: thrice the comparisons of halving, half the walks.
Draw     the kept mass is summed block by block, and again until it exceeds uniform * all of it: the block in which
         that happens is summed token by token.
"""

# Kernel bodies are Triton's language, whose stubs are wrong about operators on tensors and constexpr and literals
# that are passed as constexpr.
# pyright: reportOperatorIssue=false, reportArgumentType=false
import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.fused.sample import Operands
from gpu_kernels.launch import Launch, architecture, run_all

# 8 logits a thread of 16 warps: two 16-byte loads of float32 are in flight, and the three sums of a walk take 24
# registers. Twice the block spills.
MAX_BLOCK_V = 4096

# Below temperatures of 2**-126 the reciprocal would be inf, and the likeliest token's mass exp(0 * inf).
MAX_SCALE = tl.constexpr(2.0**126)


def sample_triton(operands: Operands, token: Tensor, cut: Tensor) -> None:
    """Writes token and cut [B].

    raises  RuntimeError on CPU tensors outside the interpreter
    """
    architecture("sample", token, sample_kernel)
    run_all(launches(operands, token, cut), token.device)


def launches(operands: Operands, token: Tensor, cut: Tensor) -> list[Launch]:
    logits = operands.logits
    B, V = logits.shape
    block_v = min(MAX_BLOCK_V, triton.next_power_of_2(V))
    arguments = {
        "logits_ptr": logits,
        "uniform_ptr": operands.uniform,
        "temperature_ptr": operands.temperature,
        "top_k_ptr": operands.top_k,
        "top_p_ptr": operands.top_p,
        "min_p_ptr": operands.min_p,
        "seed_ptr": operands.seed,
        "position_ptr": operands.position,
        "token_ptr": token,
        "cut_ptr": cut,
        "V": V,
        "stride_b": logits.stride(0),
        "BLOCK_V": block_v,
    }
    return [Launch(sample_kernel, (B,), arguments, min(32, max(4, block_v // 256)))]


@triton.jit
def swap_order(bits):
    """int32 of floats' bits to integers in the order of the floats, and back."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def ordered(x):
    """Integers in the order of the floats; both zeros are one."""
    return swap_order((x + 0.0).to(tl.int32, bitcast=True))


@triton.jit
def find_cut(p_row, V, low, high, limit, largest, scale, USE_MASS: tl.constexpr, BLOCK_V: tl.constexpr):
    """The least ordered integer in (low, high] of which the number of greater logits, or their mass, is under limit.

    low   one of which it is not, or a number that no cut is below
    high  one of which it is
    """
    o_v = tl.arange(0, BLOCK_V)
    while high - low > 1:
        step = (high - low + 3) // 4
        first = tl.minimum(low + step, high - 1)
        second = tl.minimum(first + step, high - 1)
        third = tl.minimum(second + step, high - 1)
        b_first = tl.zeros((BLOCK_V,), dtype=tl.float32)
        b_second = tl.zeros((BLOCK_V,), dtype=tl.float32)
        b_third = tl.zeros((BLOCK_V,), dtype=tl.float32)
        for i_v in range(0, V, BLOCK_V):
            b_x = tl.load(p_row + i_v + o_v, mask=i_v + o_v < V, other=-float("inf")).to(tl.float32)  # [BLOCK_V]
            b_key = ordered(b_x)
            b_weight = tl.exp((b_x - largest) * scale) if USE_MASS else tl.full((BLOCK_V,), 1.0, dtype=tl.float32)
            b_first += tl.where(b_key > first, b_weight, 0.0)
            b_second += tl.where(b_key > second, b_weight, 0.0)
            b_third += tl.where(b_key > third, b_weight, 0.0)
        is_first, is_second = tl.sum(b_first, axis=0) < limit, tl.sum(b_second, axis=0) < limit
        is_third = tl.sum(b_third, axis=0) < limit
        # The less is above a threshold, the higher it is: the first that holds ends the range.
        low = tl.where(is_first, low, tl.where(is_second, first, tl.where(is_third, second, third)))
        high = tl.where(is_first, first, tl.where(is_second, second, tl.where(is_third, third, high)))
    return high


@triton.jit
def kept_mass(p_row, V, cut, largest, scale, BLOCK_V: tl.constexpr):
    o_v = tl.arange(0, BLOCK_V)
    mass = 0.0
    for i_v in range(0, V, BLOCK_V):
        b_x = tl.load(p_row + i_v + o_v, mask=i_v + o_v < V, other=-float("inf")).to(tl.float32)
        b_is_kept = ordered(b_x) >= cut
        mass += tl.sum(tl.where(b_is_kept, tl.exp((b_x - largest) * scale), 0.0), axis=0)
    return mass


@triton.jit
def sample_kernel(
    # pointers
    logits_ptr,
    uniform_ptr,
    temperature_ptr,
    top_k_ptr,
    top_p_ptr,
    min_p_ptr,
    seed_ptr,  # None if uniform is given
    position_ptr,
    token_ptr,
    cut_ptr,
    # sizes
    V,
    # strides, in elements
    stride_b,
    # tile shape
    BLOCK_V: tl.constexpr,
):
    i_b = tl.program_id(0).to(tl.int64)
    o_v = tl.arange(0, BLOCK_V)
    p_row = logits_ptr + i_b * stride_b
    inf = float("inf")

    b_largest = tl.full((BLOCK_V,), -inf, dtype=tl.float32)
    b_where = tl.zeros((BLOCK_V,), dtype=tl.int32)
    for i_v in range(0, V, BLOCK_V):
        b_x = tl.load(p_row + i_v + o_v, mask=i_v + o_v < V, other=-inf).to(tl.float32)  # [BLOCK_V]
        b_x = tl.where(b_x == b_x, b_x, inf)  # a maximum may drop NaN; inf marks the row just as well
        b_where = tl.where(b_x > b_largest, i_v + o_v, b_where)
        b_largest = tl.maximum(b_largest, b_x)
    largest = tl.max(b_largest, axis=0)
    token = tl.min(tl.where(b_largest == largest, b_where, V), axis=0)
    temperature = tl.load(temperature_ptr + i_b)
    cut = ordered(largest).to(tl.int64)
    is_finite = (largest < inf) & (largest > -inf)

    if is_finite & (temperature > 0):
        scale = tl.minimum(1.0 / temperature, MAX_SCALE)
        high = cut  # of the largest nothing is greater
        cut = tl.full((), -2139095041, tl.int64)  # of -inf: all is kept
        top_k, top_p = tl.load(top_k_ptr + i_b), tl.load(top_p_ptr + i_b)
        if top_k > 0:
            cut = find_cut(p_row, V, cut - 1, high, top_k.to(tl.float32), largest, scale, False, BLOCK_V)
        mass = kept_mass(p_row, V, cut, largest, scale, BLOCK_V)
        if top_p < 1.0:
            cut = find_cut(p_row, V, cut - 1, high, top_p * mass, largest, scale, True, BLOCK_V)
            mass = kept_mass(p_row, V, cut, largest, scale, BLOCK_V)
        if min_p_ptr is not None:
            least = tl.minimum(largest + tl.log(tl.load(min_p_ptr + i_b)) / scale, largest)
            if ordered(least) > cut:
                cut = ordered(least).to(tl.int64)
                mass = kept_mass(p_row, V, cut, largest, scale, BLOCK_V)

        if seed_ptr is None:
            uniform = tl.load(uniform_ptr + i_b)
        else:
            uniform = tl.rand(tl.load(seed_ptr + i_b), tl.load(position_ptr + i_b).to(tl.int32))
        target = uniform * mass
        before = 0.0
        token = tl.zeros((), dtype=tl.int32) + V
        last = tl.zeros((), dtype=tl.int32)  # the last kept token, drawn if rounding leaves the sum too low
        for i_v in range(0, V, BLOCK_V):
            b_x = tl.load(p_row + i_v + o_v, mask=i_v + o_v < V, other=-inf).to(tl.float32)  # [BLOCK_V]
            m_kept = (ordered(b_x) >= cut) & (i_v + o_v < V)
            b_mass = tl.where(m_kept, tl.exp((b_x - largest) * scale), 0.0)
            last = tl.maximum(last, tl.max(tl.where(m_kept & (b_mass > 0.0), i_v + o_v, 0), axis=0))
            block_mass = tl.sum(b_mass, axis=0)
            if (token == V) & (before + block_mass > target):
                m_past = m_kept & (before + tl.cumsum(b_mass, axis=0) > target) & (b_mass > 0.0)
                token = tl.minimum(tl.min(tl.where(m_past, i_v + o_v, V), axis=0), last)
            before += block_mass
        token = tl.minimum(token, last)
    tl.store(token_ptr + i_b, tl.where(is_finite, token, -1).to(tl.int64))
    cut_value = swap_order(cut.to(tl.int32)).to(tl.float32, bitcast=True)
    tl.store(cut_ptr + i_b, tl.where(is_finite, cut_value, float("nan")))
