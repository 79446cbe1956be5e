"""How far a kernel's attention may be from the textbook's: a bound of its dtype and sizes, with no free constant."""

import torch
from torch import Tensor

from gpu_kernels.attention.textbook import Attended


def error_bounds(expected: Attended, dtype: torch.dtype, head_size: int, num_tokens: int) -> tuple[Tensor, Tensor]:
    """(of out [..., Dv], of lse [...]).

    Scores are sums of head_size products in float32, where each of head_size + 4 additions and scalings errs by at
    most 2**-23 (tensor cores cut off) of score_size. In units of that error e, a weight is off by the factor
    exp(2 e) at most, once for its score and once for the sum of all; so exp(2 e) - 1 of value_size.
    Weights are rounded to `dtype` before they meet the values: half its eps, of value_size. Sums over num_tokens in
    float32: 2**-23 each, for the weights and for the values. exp2 and its argument: 2**-21, of value_size.
    Last, out is rounded to `dtype`.
    """
    about = torch.finfo(dtype)
    score = (head_size + 4) * 2**-23 * expected.score_size.double()
    relative = torch.expm1(2 * score) + 2 * num_tokens * 2**-23 + 2**-21  # [...]
    out = (relative + about.eps / 2)[..., None] * expected.value_size + about.eps / 2 * expected.out.abs()
    lse = score + num_tokens * 2**-23 + 2**-21 + 2**-22 * expected.lse.abs()
    # Below the smallest normal number a step is smallest_normal * eps.
    return out + about.smallest_normal * about.eps, lse


def agrees(got: tuple[Tensor, Tensor], expected: Attended, *, head_size: int, num_tokens: int) -> bool:
    """(out, lse) are the textbook's within `error_bounds`, NaN and inf exactly where it has them."""
    bounds = error_bounds(expected, got[0].dtype, head_size, num_tokens)
    return all(map(_within, got, (expected.out, expected.lse), bounds))


def _within(got: Tensor, expected: Tensor, bound: Tensor) -> bool:
    if got.shape != expected.shape:
        return False
    got, special = got.double(), ~expected.isfinite()
    same = (got == expected) | (got.isnan() & expected.isnan())
    near = (got - expected).abs() <= bound
    return bool(torch.where(special, same, near).all())
