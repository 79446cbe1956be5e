"""A table as few bytes that a browser reads column by column.

    uint32 length of the header | header, JSON | columns, one after the other, each deflated by itself

The header is {"rows": N, "columns": [{"name", "size"}]}, sizes in bytes and in the order of the columns. A column is

    uint32 length of its head | head, JSON | numbers

with the head {"type": "codes", "values"} for texts and for numbers that repeat: `values` holds each once, null if it is
missing, and the numbers say by uint32 which; or {"type": "float32"} or {"type": "float64"}, NaN where missing. Numbers
are written byte by byte: first the lowest byte of every row, last the highest. Neighbouring rows have the same high
bytes, which deflate then stores in few bytes.
"""

import json
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

# A small table is kept exactly. In a large table each number keeps 12 bits after its first, one part in 8192: four
# digits.
EXACT_ROWS, MANTISSA_BITS = 2000, 12


def pack(frame: "pd.DataFrame", room: int | None = None) -> tuple[bytes, list[str]]:
    """`frame` in the layout above, and the columns that found no place.

    frame    texts, flags and numbers alone, a missing one as None or NaN; the columns that matter most come first
    room     bytes; a column that would not fit is left out
    """
    columns, left_out, size = {}, [], 0
    with ThreadPoolExecutor() as pool:  # deflate runs in parallel with Python
        every = list(pool.map(lambda name: zlib.compress(_pack_column(cast("pd.Series", frame[name]))), frame))
    for name, packed in zip(frame, every, strict=True):
        if room is not None and size + len(packed) > room:
            left_out.append(name)
            continue
        columns[name] = packed
        size += len(packed)
    head = {"rows": len(frame), "columns": [{"name": name, "size": len(data)} for name, data in columns.items()]}
    return _with_head(head, b"".join(columns.values())), left_out


def _with_head(head: Mapping[str, object], data: bytes) -> bytes:
    text = json.dumps(head, allow_nan=False, ensure_ascii=False).encode()
    return len(text).to_bytes(4, "little") + text + data


def _pack_column(column: "pd.Series") -> bytes:
    is_text = column.dtype == object or column.dtype.kind not in "fiu"
    codes, values = column.factorize(use_na_sentinel=True)
    if is_text or 4 * len(values) <= len(column):
        known = [_plain(value) for value in values]
        codes = np.where(codes < 0, len(known), codes).astype("<u4")
        return _with_head({"type": "codes", "values": [*known, None]}, _planes(codes))
    if len(column) <= EXACT_ROWS:
        return _with_head({"type": "float64"}, _planes(column.to_numpy(dtype="<f8", na_value=np.nan)))
    numbers = round_mantissa(column.to_numpy(dtype=np.float32, na_value=np.nan), MANTISSA_BITS)
    return _with_head({"type": "float32"}, _planes(numbers.astype("<f4")))


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _planes(numbers: np.ndarray) -> bytes:
    """[N] numbers of B bytes -> B planes of N bytes, the lowest byte first."""
    return np.ascontiguousarray(numbers.view(np.uint8).reshape(-1, numbers.itemsize).T).tobytes()


def round_mantissa(numbers: np.ndarray, bits: int) -> np.ndarray:
    """float32 to the nearest with `bits` of the mantissa's 23; NaN and Inf stay."""
    drop = 23 - bits
    raw = numbers.view(np.uint32)
    rounded = (raw + np.uint32(1 << (drop - 1))) & np.uint32(0xFFFFFFFF << drop & 0xFFFFFFFF)
    return np.where(np.isfinite(numbers), rounded, raw).view(np.float32)
