"""`--only`: part of a name."""

from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from quant.errors import InputError


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
