"""QTensor: a weight as its format stores it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, slots=True)
class QTensor:
    """A tensor in a format's own bytes; `quant.formats.get_format(format)` can read them.

    format   registry name of the format, e.g. "q8_0", "bf16", "w4g128"
    shape    logical shape: [N, K] for a linear's weight (out x in features), [N] for a norm
    parts    named arrays; the first axis of each is the first axis of `shape`, so rows can be
             selected, permuted and split without knowing the format
    shared   named arrays of the whole tensor: the group of each input feature, the scale of its inputs
    """

    format: str
    shape: tuple[int, ...]
    parts: dict[str, np.ndarray]
    shared: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for part, array in self.parts.items():
            if array.shape[:1] != self.shape[:1]:
                raise ValueError(f"{self.format}: part {part!r} has {array.shape[:1]} rows, expected {self.shape[:1]}")

    @property
    def size_bytes(self) -> int:
        return sum(array.nbytes for array in (*self.parts.values(), *self.shared.values()))

    @property
    def num_weights(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def rows(self, first: int, end: int) -> "QTensor":
        """Rows from `first` to `end` or to the last one, as views of this one's bytes."""
        parts = {part: array[first:end] for part, array in self.parts.items()}
        return QTensor(self.format, (min(end, self.shape[0]) - first, *self.shape[1:]), parts, self.shared)

    def take_rows(self, index: np.ndarray) -> "QTensor":
        """The rows of `index` in that order, bytes untouched: RoPE permutations, fused QKV splits."""
        parts = {part: np.ascontiguousarray(array[index]) for part, array in self.parts.items()}
        return QTensor(self.format, (len(index), *self.shape[1:]), parts, self.shared)


def concat_rows(qtensors: Sequence[QTensor]) -> QTensor:
    """The rows of all, one below the other; formats and row sizes are equal.

    raises   ValueError where shared arrays differ: the rows would be read with those of the first
    """
    first = qtensors[0]
    if len(qtensors) == 1:
        return first
    for other in qtensors[1:]:
        if not all(np.array_equal(array, other.shared[name]) for name, array in first.shared.items()):
            raise ValueError(f"rows of {first.format} are put together, but {', '.join(first.shared)} are not equal")
    parts = {part: np.concatenate([qtensor.parts[part] for qtensor in qtensors]) for part in first.parts}
    num_rows = sum(qtensor.shape[0] for qtensor in qtensors)
    return QTensor(first.format, (num_rows, *first.shape[1:]), parts, first.shared)
