"""The budget of a search: bits per weight, or bytes."""

import re
from dataclasses import dataclass

from quant.errors import InputError
from quant.present import present

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
WINDOWS = 24  # of held-out text that a mix is checked on
FORM = re.compile(r"(\d+(?:\.\d+)?)\s*(bpw|[kmg]?i?b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Target:
    """A limit on the bytes of all tensors, scales included, or on those of the file.

    text              as the user wrote it
    bits_per_weight   of the tensors, over all weights; None if `file_bytes` is the limit
    """

    text: str
    bits_per_weight: float | None
    file_bytes: float | None

    def budget_bytes(self, num_weights: int, head_bytes: int) -> int:
        """The largest size of all tensors that keeps the target. head_bytes: of the file, apart from its tensors"""
        if self.bits_per_weight is not None:
            return int(self.bits_per_weight * num_weights / 8)
        return int(present(self.file_bytes)) - head_bytes


def parse_target(text: str) -> Target:
    """raises InputError for a text of another form, or 0"""
    match = FORM.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise InputError(f"target {text!r}, expected bits per weight or bytes, such as 4.5bpw, 700MiB or 3.2GiB")
    value, unit = float(match[1]), match[2].upper()
    if unit == "BPW":
        return Target(text, value, None)
    return Target(text, None, value * UNITS[unit])
