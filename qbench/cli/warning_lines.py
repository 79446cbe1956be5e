"""Warnings that `quant` logs about a model, as lines of a command."""

import logging
import sys

from qbench.cli.rank_options import is_silent
from qbench.words.read import printable


class WarningLines(logging.Handler):
    """A line on stderr for each message, once per command, and only from a rank that prints."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        line = printable(" ".join(record.getMessage().split()))
        if line not in self._said and not is_silent():
            self._said.add(line)
            print(f"warning: {line}", file=sys.stderr)


def show_warnings() -> None:
    """Print `quant`'s warnings from here on; a new command repeats the warnings of the command before it."""
    logger = logging.getLogger("quant")
    for handler in [handler for handler in logger.handlers if isinstance(handler, WarningLines)]:
        logger.removeHandler(handler)
    logger.addHandler(WarningLines())
