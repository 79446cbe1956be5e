"""A table as few bytes that a browser reads column by column.

    uint32 length of the header | header, JSON | bytes of the columns, one after the other

The header is {"rows": N, "columns": [{"name", "type", "size", ...}]}, sizes in bytes and in the order of the columns:
    "codes"                texts, and numbers that repeat: `values` holds each once, null where missing; the bytes say
                           by uint32 which
    "float32", "float64"   numbers, NaN where missing
All are written byte by byte: first the lowest byte of every row, last the highest. Rows beside one another have the
same high bytes, which deflate then takes for next to nothing.
"""

import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

# A small table is kept exactly. In a large one each number has five digits, which is what tables show: an error of
# 2**-17 is below half a unit of the fifth.
EXACT_ROWS, MANTISSA_BITS = 2000, 16


def pack(frame: "pd.DataFrame") -> bytes:
    """`frame` in the layout above; texts and numbers alone, a missing one as None or NaN."""
    parts = [_pack_column(name, frame[name]) for name in frame]
    columns = [{**head, "size": len(data)} for head, data in parts]
    header = json.dumps({"rows": len(frame), "columns": columns}, allow_nan=False, ensure_ascii=False).encode()
    return len(header).to_bytes(4, "little") + header + b"".join(data for _, data in parts)


def _pack_column(name: str, column: "pd.Series") -> tuple[dict[str, Any], bytes]:
    is_text = column.dtype == object or column.dtype.kind not in "fiu"
    codes, values = column.factorize(use_na_sentinel=True)
    if is_text or 4 * len(values) <= len(column):
        known = [_plain(value) for value in values]
        codes = np.where(codes < 0, len(known), codes).astype("<u4")
        return {"name": name, "type": "codes", "values": [*known, None]}, _planes(codes)
    if len(column) <= EXACT_ROWS:
        return {"name": name, "type": "float64"}, _planes(column.to_numpy(dtype="<f8", na_value=np.nan))
    numbers = round_mantissa(column.to_numpy(dtype=np.float32, na_value=np.nan), MANTISSA_BITS)
    return {"name": name, "type": "float32"}, _planes(numbers.astype("<f4"))


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
