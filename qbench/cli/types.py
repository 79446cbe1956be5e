"""Types of option values: whole numbers and lists of them, shares and bytes."""

import re
from collections.abc import Callable

import click

from qbench.words.written import LARGEST, MOST_BYTES
from quant.errors import bounded


def count_option(*names: str, help: str | None = None, least: int = 1, default: int | None = None) -> Callable:
    """A click option that takes a whole number from `least` to LARGEST, and shows its default if it has one."""
    kind = click.IntRange(least, LARGEST)
    return click.option(*names, type=kind, default=default, show_default=default is not None, help=help)


class IntList(click.ParamType):
    """Numbers from `least` to `most`, separated by commas; a tuple in the order given."""

    name = "integers"

    def __init__(self, least: int, most: int = LARGEST) -> None:
        self.least, self.most = least, most

    def convert(self, value, param, ctx) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(int(word) for word in str(value).split(","))
        except ValueError:
            self.fail(f"{bounded(value, 40)!r} is no list of integers such as {self.least},4096", param, ctx)
        for number in numbers:
            if not self.least <= number <= self.most:
                self.fail(f"{bounded(str(number), 40)} is not in the range {self.least}<=x<={self.most}", param, ctx)
        return numbers


class Percentage(click.ParamType):
    """Between 0 and 1, ends excluded; written as a number, or in hundredths with a % behind it."""

    name = "share"

    def convert(self, value, param, ctx) -> float:
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            self.fail(f"{value!r} is no share such as 2% or 0.02", param, ctx)
        if not 0 < share < 1:
            self.fail(f"{value} is not between 0 and 100 %", param, ctx)
        return share


UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}  # decimal, as in llama.cpp's gguf-split


class ByteCount(click.ParamType):
    """A whole number above 0, with a unit or without: 500M, 2G, 2GB."""

    name = "size"

    def convert(self, value, param, ctx) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"([0-9]{1,15})([KMGT]?)B?", value.strip().upper())
        num_bytes = int(match[1]) * UNITS[match[2]] if match else 0
        if not 0 < num_bytes <= MOST_BYTES:
            self.fail(f"{bounded(value, 40)!r} is no number of bytes; write it like 500M or 2G", param, ctx)
        return num_bytes


BYTE_COUNT = ByteCount()
