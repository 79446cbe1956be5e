"""The limits of a search: bits per weight or bytes, and tokens per second."""

import math
import re
from dataclasses import dataclass, replace

from qbench.words.written import MOST_BYTES
from quant.errors import InputError, bounded

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
WINDOWS = 24  # of held-out text that a mix is checked on
FORM = re.compile(r"(\d+(?:\.\d+)?)\s*(bpw|tok/s|[kmg]?i?b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Target:
    """Limits on the bytes of all tensors, scales included, or on those of the file, and on the time of a step.

    text              as the user wrote it
    bits_per_weight   of the tensors, over all weights
    file_bytes        at most one of the two is a limit, the other is None
    tok_s             least tokens per second that one sequence decodes at; None: any
    """

    text: str
    bits_per_weight: float | None = None
    file_bytes: float | None = None
    tok_s: float | None = None

    @property
    def step_seconds(self) -> float:
        """The longest time of a decode step."""
        return math.inf if self.tok_s is None else 1 / self.tok_s

    def budget_bytes(self, num_weights: int, head_bytes: int) -> int | None:
        """The largest size of all tensors that keeps the target; None: any. head_bytes: of the file, apart from its
        tensors
        """
        if self.bits_per_weight is not None:
            return int(self.bits_per_weight * num_weights / 8)
        return None if self.file_bytes is None else int(self.file_bytes) - head_bytes


def parse_target(text: str) -> Target:
    """The limits in a text like 4.5bpw, 3.2GiB, 25tok/s or 4.5bpw,25tok/s.

    raises   InputError for a text of another form, 0, or two limits of one kind
    """
    target = Target(text)
    for part in text.split(","):
        match = FORM.fullmatch(part.strip())
        if match is None or not float(match[1]):
            raise InputError(
                f"target {text!r}, expected bits per weight or bytes, tokens per second, or both, such as 4.5bpw, "
                "700MiB, 25tok/s or 3.2GiB,25tok/s"
            )
        value, unit = float(match[1]), match[2].upper()
        if value * UNITS.get(unit, 1) > MOST_BYTES:
            raise InputError(f"target {bounded(text, 40)!r} is larger than any model, or faster than any machine")
        is_speed = unit == "TOK/S"
        if (target.tok_s if is_speed else target.bits_per_weight or target.file_bytes) is not None:
            kind = "two speeds" if is_speed else "two sizes"
            raise InputError(f"target {text!r} has {kind}; expected at most one size and one speed")
        if is_speed:
            target = replace(target, tok_s=value)
        elif unit == "BPW":
            target = replace(target, bits_per_weight=value)
        else:
            target = replace(target, file_bytes=value * UNITS[unit])
    return target
