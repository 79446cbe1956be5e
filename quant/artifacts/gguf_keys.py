"""Typed look-ups of a GGUF file's metadata keys, the whole ones and those under one architecture's prefix."""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from quant.artifacts.gguf_cursor import Value
from quant.errors import InputError, shown

T = TypeVar("T", bound=int | float | str)


def scalar(metadata: Mapping[str, Value], key: str, kind: type[T], where: str) -> T | None:
    """The value of `key`, or None if it is absent. raises InputError for a value of another type, an array included"""
    value = metadata.get(key)
    if value is None:
        return None
    if type(value) is not kind:
        raise InputError(f"{where}: key {key!r} must be {kind.__name__}, got {shown(value)}")
    return value


class KeyReader:
    """where: the file, which errors begin with"""

    def __init__(self, metadata: Mapping[str, Value], arch: str, where: str) -> None:
        self._metadata, self.arch, self.where = metadata, arch, where

    def get(self, key: str, kind: type[T]) -> T | None:
        """The value of `ARCH.key`, or None if it is absent. A list with the same number for each layer counts as that.

        raises   InputError for a value of another type, and for layers that differ
        """
        name = f"{self.arch}.{key}"
        value = self._metadata.get(name)
        if isinstance(value, np.ndarray) and value.size and kind is int and value.dtype.kind in "iu":
            if np.ptp(value):
                raise InputError(f"{self.where}: key {name!r} differs between layers ({shown(value.tolist())})")
            return kind(value[0])
        value = scalar(self._metadata, name, kind, self.where)
        if kind is float and isinstance(value, float):
            with np.errstate(over="ignore"):
                return kind(str(np.float32(value)))  # stored as float32: the shortest number that means the same
        return value

    def require(self, key: str, kind: type[T]) -> T:
        """The value of `ARCH.key`. raises InputError if it is absent, or of another type"""
        value = self.get(key, kind)
        if value is None:
            raise InputError(f"{self.where}: key {f'{self.arch}.{key}'!r} is missing")
        return value
