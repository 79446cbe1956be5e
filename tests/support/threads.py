"""Results of the kernels under several numbers of threads."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from support.close import assert_close

import cpu_kernels

Result = TypeVar("Result")


def with_threads(counts: Iterable[int], compute: Callable[[], Result]) -> list[Result]:
    """The results of `compute` under each number of threads; then the number is as before."""
    before, results = cpu_kernels.get_num_threads(), []
    try:
        for count in counts:
            cpu_kernels.set_num_threads(count)
            results.append(compute())
    finally:
        cpu_kernels.set_num_threads(before)
    return results


def assert_threads_change_nothing(counts: Iterable[int], compute: Callable[[], Result]) -> Result:
    """The result of `compute`, an array or a tuple of arrays, which every number of threads gives to the bit."""
    first, *others = with_threads(counts, compute)
    for other in others:
        for got, expected in zip(_arrays(other), _arrays(first), strict=True):
            assert_close(got, expected)
    return first


def _arrays(result: object) -> tuple:
    return result if isinstance(result, tuple) else (result,)
