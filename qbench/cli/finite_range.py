"""A number on the command line that is one: no NaN, which is in every range and no infinity."""

import math

import click

LARGEST = 1e9  # as seconds 31 years; functions that wait take no more than 292


class FiniteRange(click.FloatRange):
    """`click.FloatRange` without NaN and infinity, which `float` reads too, and up to LARGEST if no `max` is given."""

    def __init__(self, min: float, max: float = LARGEST, *, min_open: bool = False, max_open: bool = False) -> None:
        super().__init__(min, max, min_open=min_open, max_open=max_open)

    def convert(self, value, param, ctx) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number
