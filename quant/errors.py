"""The one exception that means: the user gave us something we cannot work with."""

from reprlib import Repr
from typing import Any

# Messages quote values of files, so their length is bounded here. The longest of our own lists (every recipe, every
# format) take about half of this.
MOST_CHARACTERS = 2400


class InputError(ValueError):
    """Bad input, in one line: got, expected, what to do.

    The command line prints the message alone and exits with 2; every reader of a file,
    a recipe or a model spec raises this and nothing else for errors that a user can mend.
    A message of more than MOST_CHARACTERS loses its middle: the file comes first, the remedy last.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(bounded(str(message), MOST_CHARACTERS))


def bounded(text: str, most: int) -> str:
    """The text, without its middle if it has more than `most` characters."""
    if len(text) <= most:
        return text
    kept = (most - 5) // 2
    return f"{text[:kept]} ... {text[-kept:]}"


def shown(value: Any) -> str:
    """A value from a file for a message: its repr, with a few items of each collection, in at most 100 characters."""
    return bounded(_SHORT.repr(value), 100)


_SHORT = Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = _SHORT.maxdict = 4
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxlong, _SHORT.maxother = 3, 80, 40, 80
