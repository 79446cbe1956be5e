"""Memory as people write it: 6GiB, 6GB, 500MB."""

import math
import re

import click

UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


class MemorySize(click.ParamType):
    """Bytes, above 0: a number with a unit, powers of ten (GB) or of two (GiB)."""

    name = "size"

    def convert(self, value, param, ctx) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", value.strip(), re.IGNORECASE)
        prefix = match and (match[2].upper() if match[3] or match[2].upper() != "K" else "k") + match[3].lower()
        if match is None or prefix not in UNITS or float(match[1]) * UNITS[prefix] < 1:
            self.fail(f"{value!r} is no amount of memory; write it like 6GiB, 6GB or 500MB", param, ctx)
        return int(float(match[1]) * UNITS[prefix])


MEMORY_SIZE = MemorySize()


def enough(num_bytes: int) -> str:
    """As short as --memory takes it, and no less: 15_743_999 -> "15.75MB"."""
    unit = next(name for name in ("T", "G", "M", "k", "") if num_bytes >= UNITS[name])
    return f"{math.ceil(num_bytes / UNITS[unit] * 100) / 100:g}{unit}B"
