"""The largest batch and context that stay within some memory."""

from collections.abc import Callable
from dataclasses import dataclass

from quant.json_data import JsonData

Total = Callable[[int, int], int]  # context, batch -> bytes
MOST_SEQUENCES = 1 << 20  # where a batch is no longer searched for
MOST_LISTED = 128


@dataclass(frozen=True, slots=True)
class Room(JsonData):
    """So many sequences of so long a context fit. tokens: of all of them"""

    batch: int
    context: int
    tokens: int
    total_bytes: int


def largest(fits: Callable[[int], bool], limit: int) -> int:
    """The largest number from 1 to `limit` that fits; 0 if no number fits. If one fits, all smaller ones do."""
    low, high = 0, 1
    while high <= limit and fits(high):
        low, high = high, 2 * high
    high = min(high, limit + 1)  # low fits and high does not, or is past the limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def largest_contexts(total: Total, memory_bytes: int, max_seq_len: int) -> list[Room]:
    """For 1, 2, 4, ... MOST_LISTED sequences the longest context of all of them, as long as one token fits.

    max_seq_len  the model's own context
    """
    rows, batch = [], 1
    while batch <= MOST_LISTED:
        context = largest(lambda tokens, batch=batch: total(tokens, batch) <= memory_bytes, max_seq_len)
        if not context:
            break
        rows.append(Room(batch, context, batch * context, total(context, batch)))
        batch *= 2
    return rows


def largest_batch(total: Total, memory_bytes: int, context: int) -> int:
    """Number of sequences of `context` tokens each; 0 if no sequence fits."""
    return largest(lambda batch: total(context, batch) <= memory_bytes, MOST_SEQUENCES)
