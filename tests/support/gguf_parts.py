"""A GGUF file taken apart into keys, tensor table and data, changed at will, and put together again."""

import struct
from dataclasses import dataclass, field
from pathlib import Path

from quant.artifacts.gguf_cursor import ARRAY, SCALARS, STRING, Cursor

ALIGNMENT = 32


@dataclass(slots=True)
class GgufParts:
    """keys: name -> (value type, bytes of the value); tensors: (name, dims innermost first, ggml type, offset)"""

    keys: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    tensors: list[tuple[str, list[int], int, int]] = field(default_factory=list)
    data: bytes = b""

    @classmethod
    def read(cls, path: Path) -> "GgufParts":
        cursor = Cursor(path.read_bytes(), str(path), 8)
        num_tensors, num_keys = cursor.integer(10, "tensors"), cursor.integer(10, "keys")
        parts = cls()
        for _ in range(num_keys):
            name, kind = cursor.string("name"), cursor.integer(4, "type")
            start = cursor.position
            cursor.value(kind, name)
            parts.keys[name] = (kind, bytes(cursor.data[start : cursor.position]))
        for _ in range(num_tensors):
            name = cursor.string("name")
            dims = [cursor.integer(10, "dim") for _ in range(cursor.integer(4, "dims"))]
            parts.tensors.append((name, dims, cursor.integer(4, "type"), cursor.integer(10, "offset")))
        parts.data = bytes(cursor.data[-(-cursor.position // ALIGNMENT) * ALIGNMENT :])
        return parts

    def set(self, name: str, value: object) -> None:
        """A key with a value of a type that fits it: bool, int, float, text, list of texts or of ints, or raw."""
        self.keys[name] = value if isinstance(value, tuple) else packed(value)

    def drop(self, ends: tuple[str, ...]) -> None:
        """Removes the tensors whose names end so, with their data: llama.cpp allows no holes."""
        stops = [*(offset for *_, offset in self.tensors[1:]), len(self.data)]
        kept, data, end = [], [], 0
        for (name, dims, kind, offset), stop in zip(self.tensors, stops, strict=True):
            if not name.endswith(ends):
                kept.append((name, dims, kind, end))
                data.append(self.data[offset:stop])
                end += stop - offset
        self.tensors, self.data = kept, b"".join(data)

    def bytes(self) -> bytes:
        head = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys))
        for name, (kind, raw) in self.keys.items():
            head += packed(name)[1] + struct.pack("<I", kind) + raw
        for name, dims, kind, offset in self.tensors:
            head += packed(name)[1] + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        return head + bytes(-len(head) % ALIGNMENT) + self.data


def packed(value: object) -> tuple[int, bytes]:
    """(value type, bytes) of a metadata value"""
    if isinstance(value, str):
        raw = value.encode()
        return STRING, struct.pack("<Q", len(raw)) + raw
    if isinstance(value, list):
        items = [packed(item) for item in value] or [packed(0)]
        count = len(value)
        return ARRAY, struct.pack("<IQ", items[0][0], count) + b"".join(raw for _, raw in items[:count])
    kind = 7 if isinstance(value, bool) else 6 if isinstance(value, float) else 4 if 0 <= int(value) < 2**32 else 11  # type: ignore[call-overload]
    return kind, struct.pack(SCALARS[kind][0], value)
