"""The GPU's kernels, checked and timed by gpu_kernels' own measurement."""

from collections.abc import Callable, Iterator

from gpu_kernels.measurement import Measurement, WrongResults, known_ops
from quant.errors import InputError

__all__ = ["WrongResults", "gpu_rows"]

BUDGET_S = 480  # of ten minutes; the rest is for the slowest problem and the start


def gpu_rows(only: str, tell: Callable[[str], None]) -> Iterator[list[dict]]:
    """Each timed problem's rows, the most important problems first.

    only    part of an op's name
    `tell`  called with one line per running problem, and at the end with lines about refused or skipped ones
    raises  InputError without such an op, a CUDA GPU or a commit to name; WrongResults if a kernel is wrong
    """
    try:
        run = Measurement(known_ops(only), BUDGET_S, tell=tell)
        yield from run.rows()
    except WrongResults:
        raise
    except (RuntimeError, ValueError) as error:
        raise InputError(str(error)) from error
    for told in run.epilogue():
        tell(told)
