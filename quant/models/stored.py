"""Where a checkpoint keeps a tensor that it names, stacks, transposes or shifts in a way of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quant.present import present

SHIFTED = "f32"  # format of tensors that a checkpoint keeps as a difference: narrower ones round the sum


@dataclass(frozen=True, slots=True)
class Stored:
    """The tensor of the file that holds a table's row.

    name        as the file has it; the first "{}" is the layer's number
    stack       fields of the numbers of rows of all tensors in it, one below the other; () if it is alone
    place       which of these it is
    heads       field of the number of heads whose rows are together, those of each tensor in turn; None: no such turns
    transposed  a matrix is [in, out] there, unless it is quantized
    offset      term added to the numbers of the file
    """

    name: str
    stack: tuple[str, ...] = ()
    place: int = 0
    heads: str | None = None
    transposed: bool = False
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class StoredAt:
    """The facts of `Stored` for one tensor of one model, in numbers. place: None for a tensor that is alone"""

    name: str
    sizes: tuple[int, ...] = ()
    place: int | None = None
    num_heads: int = 1
    transposed: bool = False
    offset: float = 0.0

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the tensor in the file, out x in, if the canonical one has `shape`"""
        return shape if self.place is None else (sum(self.sizes), *shape[1:])

    @property
    def rows(self) -> np.ndarray:
        """[n] int64: the rows of the file's tensor that are this one's, in its order"""
        return rows_of_stack(self.sizes, self.num_heads)[present(self.place)]


def rows_of_stack(sizes: Sequence[int], num_heads: int = 1) -> list[np.ndarray]:
    """Row numbers of each tensor in a stack: [n] int64 each.

    num_heads  of turns that the tensors take, each with the rows of one head
    """
    rows = np.arange(sum(sizes)).reshape(num_heads, -1)
    ends = np.cumsum([size // num_heads for size in sizes])
    return [part.reshape(-1) for part in np.split(rows, ends[:-1], axis=1)]
