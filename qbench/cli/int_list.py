"""A list of numbers on the command line: `--depth 0,4096`."""

import click


class IntList(click.ParamType):
    """Numbers of at least `least`, separated by commas; a tuple in the order given."""

    name = "integers"

    def __init__(self, least: int) -> None:
        self.least = least

    def convert(self, value, param, ctx) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(int(word) for word in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is no list of integers such as {self.least},4096", param, ctx)
        for number in numbers:
            if number < self.least:
                self.fail(f"{number} is not in the range x>={self.least}", param, ctx)
        return numbers
