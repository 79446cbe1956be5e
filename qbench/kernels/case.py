"""One kernel: the inputs that try it, random weights too, and the oracle that judges the distance of its result."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from quant.formats import Format, TrellisFormat
from quant.qtensor import QTensor

# Any bits are a trellis code, and searching for the best ones takes seconds. The values deviate by 147.8.
TRELLIS_SCALE = 1 / 147.8


@dataclass(frozen=True, slots=True)
class Deviation:
    """The element that comes closest to its bound, or exceeds it most.

    error    |got - expected| there; infinity if the shape differs, or if NaN or infinity is out of place
    bound    largest error by rounding there; 0: the results are equal
    loosest  the largest bound of all elements, over the root mean square of the expected values: errors below it go
             unseen
    """

    error: float
    bound: float
    loosest: float = 0.0

    @property
    def is_right(self) -> bool:
        return self.error <= self.bound

    @property
    def used(self) -> float:
        """Error over bound; the order in which deviations are worse."""
        if self.error == 0:
            return 0.0
        return self.error / self.bound if self.bound > 0 else float("inf")


def deviation(got: np.ndarray, expected: np.ndarray, bound: np.ndarray | float) -> Deviation:
    """Largest error of two arrays of one shape; bound is one number, or one per element."""
    if got.shape != expected.shape:
        return Deviation(float("inf"), float(np.max(bound, initial=0.0)))
    if got.size == 0:
        return Deviation(0.0, 0.0)
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    bound = np.broadcast_to(np.asarray(bound, dtype=np.float64), got.shape)
    special = ~np.isfinite(expected) | ~np.isfinite(got)
    bound = np.where(special, 0.0, bound)
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        error = np.where(special, np.where(same, 0.0, np.inf), np.abs(got - expected))
    with np.errstate(divide="ignore", invalid="ignore"):
        used = np.where(error == 0, 0.0, error / bound)  # a bound of 0 makes any error infinitely many bounds
    worst = np.unravel_index(np.argmax(used), used.shape)
    return Deviation(float(error[worst]), float(bound[worst]), looseness(expected, bound))


def looseness(expected: np.ndarray, bound: np.ndarray) -> float:
    """Looseness over finite elements; 0 if those are zeros, since a bound has no ratio to zero."""
    finite = np.isfinite(expected)
    size = np.sqrt(np.square(expected[finite]).mean()) if finite.any() else 0.0
    return float(bound.max(initial=0.0, where=finite) / size) if size > 0 else 0.0


def worst(deviations: list[Deviation]) -> Deviation:
    return max(deviations, key=lambda one: one.used)


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


def random_weight(fmt: Format, shape: tuple[int, int], rng: np.random.Generator, deviation: float = 1.0) -> QTensor:
    """A weight [N, K] of normal values, or of nearly normal ones in a trellis code"""
    if not isinstance(fmt, TrellisFormat):
        return fmt.quantize((deviation * rng.standard_normal(shape)).astype(np.float32))
    fmt.check_matrix(shape)
    words = rng.integers(0, 1 << 16, (shape[0] * shape[1] // 256, fmt.code.num_words), dtype=np.uint16)
    scale = (deviation * TRELLIS_SCALE * rng.uniform(0.5, 1.5, (shape[0], 1))).astype(np.float32)
    return fmt.pack(words, scale, shape)
