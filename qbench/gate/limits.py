"""Limits of a figure: passed unless it is exceeded for sure; if that is open, a warning."""

import warnings
from collections.abc import Sequence


def within(what: str, value: float | None, interval: Sequence[float] | None, limit: float | None) -> None:
    """raises AssertionError for a value that is over its limit for sure: its 95 % interval is, or it is not finite"""
    if limit is None:
        return
    if value is None:
        raise AssertionError(f"{what} is not finite, the limit {limit:.6g}")
    low, high = interval or (value, value)
    shown = f"{what} is {value:.6g} [{low:.6g}, {high:.6g}], the limit {limit:.6g}"
    require(low <= limit, shown)
    if value > limit:
        warnings.warn(f"{shown}: over it, but within its interval", stacklevel=3)


def require(passed: bool, message: str) -> None:
    if not passed:
        raise AssertionError(message)
