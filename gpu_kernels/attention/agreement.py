"""How far a kernel's attention may be from the textbook's: a bound of its dtype and sizes, with no free constant."""

import math

import torch
from torch import Tensor

from gpu_kernels.attention.textbook import Attended, Mass

Results = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor | None]  # out, lse and mass


def error_bounds(expected: Attended, dtype: torch.dtype, head_size: int, num_tokens: int) -> tuple[Tensor, Tensor]:
    """(of out [..., Dv], of lse [...]).

    Scores are sums of head_size products in float32; each of head_size + 4 additions and scalings errs by at
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
    # Below the smallest normal number, one step is smallest_normal * eps.
    return out + about.smallest_normal * about.eps, lse


def mass_bound(expected: Mass, head_size: int, num_tokens: int) -> Tensor:
    """[..., Hkv, T]: how far the mass of a token may be.

    The exponent of a weight is score - lse. Both err as `error_bounds` says, and |lse| is at most score_size +
    log(num_tokens). A weight is exp2 of it, 2**-21 more. The sum of num_rows weights is rounded as often. Weights below
    the smallest normal number may be 0.
    """
    size = expected.score_size[..., None]  # [..., Hkv, 1]
    exponent = 2 * (head_size + 4) * 2**-23 * size + num_tokens * 2**-23
    exponent = exponent + 2**-21 * (1 + size + math.log(max(num_tokens, 1)))
    relative = torch.expm1(exponent) + 2**-21 + expected.num_rows * 2**-24
    return relative * expected.weight + expected.num_rows * torch.finfo(torch.float32).smallest_normal


def mass_agrees(got: Tensor, expected: Mass, *, head_size: int, num_tokens: int) -> bool:
    """The mass is the textbook's within `mass_bound`, and 0 for the same tokens."""
    return _within(got, expected.weight, mass_bound(expected, head_size, num_tokens))


def agrees(got: Results, expected: Attended, *, head_size: int, num_tokens: int) -> bool:
    """(out, lse) are the textbook's within `error_bounds`, with NaN and inf at the same places.

    The mass, third of `got`, is there if and only if it is expected.
    """
    out, lse, mass = got if len(got) == 3 else (*got, None)
    if (mass is None) != (expected.mass is None):
        return False
    bounds = error_bounds(expected, out.dtype, head_size, num_tokens)
    is_near = all(map(_within, (out, lse), (expected.out, expected.lse), bounds))
    if mass is None or expected.mass is None or not is_near:
        return is_near
    return mass_agrees(mass, expected.mass, head_size=head_size, num_tokens=num_tokens)


def _within(got: Tensor, expected: Tensor, bound: Tensor) -> bool:
    if got.shape != expected.shape:
        return False
    got, special = got.double(), ~expected.isfinite()
    same = (got == expected) | (got.isnan() & expected.isnan())
    near = (got - expected).abs() <= bound
    return bool(torch.where(special, same, near).all())
