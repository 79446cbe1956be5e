"""Types of option values, numbers, sizes, shares and lists of them, and the options that most often take them."""

import math
import re
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from qbench.words.written import LARGEST, MOST_BYTES
from quant.errors import InputError, bounded


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


HIGHEST = 1e9  # as seconds 31 years; functions that wait take no more than 292


class FiniteRange(click.FloatRange):
    """`click.FloatRange` without NaN and infinity, which `float` reads too, and up to HIGHEST if no `max` is given."""

    def __init__(self, min: float, max: float = HIGHEST, *, min_open: bool = False, max_open: bool = False) -> None:
        super().__init__(min, max, min_open=min_open, max_open=max_open)

    def convert(self, value, param, ctx) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


SECONDS = {"s": 1, "min": 60, "h": 3600}


class CaseLimit(click.ParamType):
    """(cases, None) of a whole number, (None, seconds) of a number with a unit; both above 0."""

    name = "cases|time"

    def convert(self, value, param, ctx) -> tuple[int | None, float | None]:
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?) *(s|min|h|)", value.strip())
        number, unit = (match[1], match[2]) if match else ("0", "")
        if not 0 < float(number) <= LARGEST or (not unit and "." in number):
            self.fail(f"{value!r} is neither a number of cases nor a time, such as 50min or 1.5h", param, ctx)
        return (None, float(number) * SECONDS[unit]) if unit else (int(number), None)


def only_option(named: str, explained: str) -> Callable[[Any], Any]:
    """All if it is not given; "" would mean all, too, and is refused.

    named      e.g. "an op"
    explained  help text
    """

    def check(ctx: click.Context, param: click.Parameter, value: str) -> str:
        if not value and ctx.get_parameter_source("only") is not ParameterSource.DEFAULT:
            raise InputError(f"--only: got an empty name, expected part of the name of {named}")
        return value

    return click.option("--only", default="", callback=check, help=explained)
