"""Options whose value is a whole number."""

from collections.abc import Callable

import click

from qbench.words.written import LARGEST


def count_option(*names: str, help: str | None = None, least: int = 1, default: int | None = None) -> Callable:
    """A click option that takes a whole number from `least` to LARGEST, and shows its default if it has one."""
    kind = click.IntRange(least, LARGEST)
    return click.option(*names, type=kind, default=default, show_default=default is not None, help=help)
