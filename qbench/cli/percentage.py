"""A share on the command line: `--precision 2%` or `--precision 0.02`."""

import click


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
