"""GPU ops called by the keywords of their `Operands`."""

from collections.abc import Callable
from typing import Any


def call_op(function: Callable[..., Any], operands: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """The op's results. `impl` among the keywords is the function's; all else makes its `Operands`."""
    impl = named.pop("impl", None)
    return function(operands(*given, **named), impl)
