"""What one kernel is: the inputs that try it, the oracle that judges it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from qbench.kernels.deviation import Deviation


@dataclass(frozen=True, slots=True)
class Problem:
    """One call of a kernel on inputs of one shape, and the judgement of what comes out.

    run      instruction set -> result, and the name of the implementation that says it ran (None: it does not say)
    check    result -> how far it is from the oracle's
    not_for  instruction sets that have no such call
    """

    label: str
    run: Callable[[str], tuple[np.ndarray, str | None]]
    check: Callable[[np.ndarray], Deviation]
    not_for: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Kernel:
    """An op under test, in all instruction sets that cpu_kernels.op_table() has for it.

    op        as the table names it
    problems  inputs of odd shapes: 1, 3, 63, 131 and what the op cuts its work into, one less and one more
    runs_as   the op of the table whose implementations it runs, where it has none of its own
    """

    op: str
    problems: Callable[[], Iterable[Problem]]
    runs_as: str | None = None
