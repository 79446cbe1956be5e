"""How far a run goes, on the command line: `--limit 10` cases, or `--limit 50min`."""

import re

import click

from qbench.words.written import LARGEST

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
