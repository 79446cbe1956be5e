"""When a result is its oracle's: bounds that follow from the type that it is rounded to."""

import torch
from torch import Tensor


def within_rounding(y: Tensor, expected: Tensor, float32_roundings: int) -> bool:
    """y is expected, within one rounding to y's type (of subnormals too) after so many roundings in float32.

    Each rounding to float32 adds at most 2**-24 of the value, the one to y's type half of one step: eps / 2 of a normal
    value, and half of smallest_normal * eps of a subnormal one (a whole one is allowed). NaN agrees with NaN alone.
    """
    about = torch.finfo(y.dtype)
    bound = (about.eps / 2 + float32_roundings * 2**-24) * expected.abs() + about.smallest_normal * about.eps
    error = (y.double() - expected.double()).abs()
    same = (error <= bound) | (y.double() == expected.double()) | (y.isnan() & expected.isnan())
    return bool(same.all())


def same(got: Tensor, expected: Tensor) -> bool:
    """Equal, element by element, and NaN where the other is."""
    return torch.equal(got.isnan(), expected.isnan()) and torch.equal(
        got.nan_to_num(nan=0.0), expected.nan_to_num(nan=0.0)
    )
