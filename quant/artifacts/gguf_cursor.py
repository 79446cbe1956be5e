"""Reads GGUF's primitive values and never past the end of the file."""

import mmap
import struct
from dataclasses import dataclass

import numpy as np

from quant.errors import InputError

# value type number -> (struct code, NumPy dtype), all little-endian
SCALARS: dict[int, tuple[str, str]] = {
    0: ("<B", "u1"),
    1: ("<b", "i1"),
    2: ("<H", "<u2"),
    3: ("<h", "<i2"),
    4: ("<I", "<u4"),
    5: ("<i", "<i4"),
    6: ("<f", "<f4"),
    7: ("<B", "u1"),  # bool
    10: ("<Q", "<u8"),
    11: ("<q", "<i8"),
    12: ("<d", "<f8"),
}
BOOL, STRING, ARRAY = 7, 8, 9
LENGTH_BYTES = 8
Value = str | bool | int | float | list[str] | np.ndarray  # of a metadata key, as it is read
Written = Value | list[int] | list[float] | bytes  # and as it is written
# Strings become Python objects and arrays copies; no real header comes near this (Llama 3's is 8 MB).
MAX_HEADER_BYTES = 1 << 30


@dataclass(slots=True)
class Cursor:
    """A position in `data`; every method moves it, and raises InputError where the file does not go on."""

    data: bytes | mmap.mmap
    where: str
    position: int = 0

    @property
    def remaining(self) -> int:
        return min(len(self.data), MAX_HEADER_BYTES) - self.position

    def take(self, num_bytes: int, what: str) -> bytes:
        if num_bytes > self.remaining:
            raise InputError(
                f"{self.where}: {what} at byte {self.position} takes {num_bytes} bytes and {self.remaining} are left; "
                "the file is truncated or corrupt"
            )
        start = self.position
        self.position += num_bytes
        return self.data[start : self.position]

    def scalar(self, value_type: int, what: str) -> int | float | bool:
        code = SCALARS[value_type][0]
        (value,) = struct.unpack(code, self.take(struct.calcsize(code), what))
        if value_type == BOOL:
            if value > 1:
                raise InputError(f"{self.where}: {what} must be 0 or 1, got {value}")
            return bool(value)
        return value

    def integer(self, value_type: int, what: str) -> int:
        """A scalar of a whole-number type."""
        value = self.scalar(value_type, what)
        assert isinstance(value, int)
        return value

    def count(self, what: str, item_bytes: int) -> int:
        """A length that the rest of the file can hold, if each item takes at least `item_bytes`."""
        value = self.integer(10, what)
        if value * item_bytes > self.remaining:
            raise InputError(
                f"{self.where}: {what} is {value}, but the {self.remaining} bytes left hold at most "
                f"{self.remaining // item_bytes}; the file is truncated or corrupt"
            )
        return value

    def string(self, what: str) -> str:
        raw = self.take(self.count(f"length of {what}", 1), what)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{self.where}: {what} is not UTF-8 ({error})") from error

    def value(self, value_type: int, what: str) -> Value:
        """A metadata value: Python scalar or string, list of strings, or NumPy array of numbers."""
        if value_type == STRING:
            return self.string(what)
        if value_type == ARRAY:
            return self._array(what)
        self._check_type(value_type, what)
        return self.scalar(value_type, what)

    def _array(self, what: str) -> list[str] | np.ndarray:
        item_type = self.integer(4, f"item type of {what}")
        if item_type == STRING:
            length = self.count(f"length of {what}", LENGTH_BYTES)
            return [self.string(f"{what}[{index}]") for index in range(length)]
        self._check_type(item_type, what)
        dtype = np.dtype(SCALARS[item_type][1])
        length = self.count(f"length of {what}", dtype.itemsize)
        return np.frombuffer(self.take(length * dtype.itemsize, what), dtype)

    def _check_type(self, value_type: int, what: str) -> None:
        if value_type not in SCALARS:  # an array in an array too: it can nest for ever
            raise InputError(f"{self.where}: {what} has value type {value_type}, which is unknown here")
