"""One kernel: the inputs that try it, and the oracle that judges it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from qbench.kernels.deviation import Deviation


@dataclass(frozen=True, slots=True)
class Problem:
    """One call of a kernel on inputs of one shape, and the judgement of its output.

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
    problems  inputs of odd shapes: 1, 3, 63, 131 and the op's tile sizes, one less and one more
    runs_as   the op of the table whose implementations it runs, if it has no own ones
    """

    op: str
    problems: Callable[[], Iterable[Problem]]
    runs_as: str | None = None
