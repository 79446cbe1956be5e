"""The budget of a search: bits per weight, or bytes."""

import re
from dataclasses import dataclass

from quant.errors import InputError

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
WINDOWS = 24  # of held-out text that a mix is checked on
FORM = re.compile(r"(\d+(?:\.\d+)?)\s*(bpw|[kmg]?i?b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Target:
    """A limit on the bytes of all tensors, scales included.

    text              as the user wrote it
    bits_per_weight   over all weights; None if `size_bytes` is the limit
    """

    text: str
    bits_per_weight: float | None
    size_bytes: float | None

    def budget_bytes(self, num_weights: int) -> int:
        """The largest size that keeps the target."""
        if self.bits_per_weight is None:
            return int(self.size_bytes or 0)
        return int(self.bits_per_weight * num_weights / 8)


def parse_target(text: str) -> Target:
    """raises InputError for a text of another form, or 0"""
    match = FORM.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise InputError(f"target {text!r}, expected bits per weight or bytes, such as 4.5bpw, 700MiB or 3.2GiB")
    value, unit = float(match[1]), match[2].upper()
    if unit == "BPW":
        return Target(text, value, None)
    return Target(text, None, value * UNITS[unit])
