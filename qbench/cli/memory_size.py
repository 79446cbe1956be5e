"""Memory as people write it: 6GiB, 6GB, 500MB."""

import math

import click

from qbench.words.written import UNITS, parse_bytes, parse_share
from quant.errors import InputError


class MemorySize(click.ParamType):
    """Bytes, above 0: a number with a unit, powers of ten (GB) or of two (GiB)."""

    name = "size"

    def convert(self, value, param, ctx) -> int | float:
        if isinstance(value, (int, float)):
            return value
        try:
            return parse_bytes(value)
        except InputError as error:
            self.fail(str(error), param, ctx)


class SizeOrShare(MemorySize):
    """Bytes; a share such as 25% is a float."""

    def convert(self, value, param, ctx) -> int | float:
        try:
            share = None if isinstance(value, (int, float)) else parse_share(value)
        except InputError as error:
            self.fail(str(error), param, ctx)
        return super().convert(value, param, ctx) if share is None else share


class LimitSize(SizeOrShare):
    """Bytes, or a share of the bytes of MODEL's weights; MODEL has to be eager, so that it is known by then."""

    def convert(self, value, param, ctx) -> int:
        size = super().convert(value, param, ctx)
        if isinstance(size, int):
            return size
        from qbench.sources import open_source

        model = ctx.params.get("model") or ctx.params["models"][0]
        return int(size * sum(tensor.size_bytes for tensor in open_source(model).tensors.values()))


MEMORY_SIZE, SIZE_OR_SHARE = MemorySize(), SizeOrShare()


def enough(num_bytes: int) -> str:
    """As short as --memory takes it, and no less: 15_743_999 -> "15.75MB"."""
    unit = next(name for name in ("T", "G", "M", "k", "") if num_bytes >= UNITS[name])
    return f"{math.ceil(num_bytes / UNITS[unit] * 100) / 100:g}{unit}B"
