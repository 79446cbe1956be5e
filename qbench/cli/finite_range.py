"""A number on the command line that is one: no NaN, which is in every range, and no infinity."""

import math

import click


class FiniteRange(click.FloatRange):
    """`click.FloatRange` without NaN and infinity, which `float` reads too."""

    def convert(self, value, param, ctx) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number
