"""A list of numbers on the command line: `--depth 0,4096`."""

import click

from qbench.words.written import LARGEST
from quant.errors import bounded


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
