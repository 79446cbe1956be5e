"""Results of the kernels under several numbers of threads."""

from collections.abc import Callable, Iterable
from typing import TypeVar

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
