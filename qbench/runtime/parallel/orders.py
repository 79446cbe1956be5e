"""Orders: lists of whole numbers that rank 0 sends to all other ranks, and that say what to run next."""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.parallel.ranks import Ranks


class Kind(IntEnum):
    """Kinds of orders.

    IDLE   nothing to do; keeps the ranks from a time-out
    POOL   number of pages and their size: sequences live in a new pool
    CACHE  batch and capacity: a new cache of its own memory
    PASS   tokens, counts, lengths, pages and copies: one forward pass, as `Leading.forward` fills it in
    END    the last order
    """

    IDLE = 0
    POOL = 1
    CACHE = 2
    PASS = 3
    END = 4


def pack(kind: Kind, arrays: Sequence[np.ndarray]) -> Tensor:
    """One message: kind, number of arrays, the dimensions of each, then their entries; int32 in the bits of float32.

    arrays  integers below 2**31
    """
    head = [kind, len(arrays), *(number for array in arrays for number in (array.ndim, *array.shape))]
    numbers = np.concatenate([np.array(head), *(array.ravel() for array in arrays)]).astype(np.int32)
    return torch.from_numpy(numbers).view(torch.float32)


def unpack(message: Tensor) -> tuple[Kind, list[np.ndarray]]:
    numbers = message.view(torch.int32).numpy().astype(np.int64)
    kind, count, at = Kind(int(numbers[0])), int(numbers[1]), 2
    shapes = []
    for _ in range(count):
        ndim = int(numbers[at])
        shapes.append(numbers[at + 1 : at + 1 + ndim].tolist())
        at += 1 + ndim
    arrays = []
    for shape in shapes:
        size = int(np.prod(shape))
        arrays.append(numbers[at : at + size].reshape(shape))
        at += size
    return kind, arrays


def send_order(ranks: Ranks, kind: Kind, *arrays: np.ndarray) -> None:
    """From rank 0 to all others: the length of the message, then the message."""
    message, others = pack(kind, arrays), range(1, ranks.layout.num_ranks)
    ranks.send(torch.tensor([len(message)], dtype=torch.int32).view(torch.float32), others)
    ranks.send(message, others)


def receive_order(ranks: Ranks) -> tuple[Kind, list[np.ndarray]]:
    length = int(ranks.receive([1], 0).view(torch.int32))
    return unpack(ranks.receive([length], 0))
