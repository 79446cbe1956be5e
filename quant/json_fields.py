"""JsonFields: typed look-ups in a JSON object that a file holds. Null means absent."""

from collections.abc import Mapping
from typing import Any

from quant.errors import InputError, shown


class JsonFields:
    """where: the file and the place in it, which errors begin with. raises InputError if `values` is no object"""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, Mapping):
            raise InputError(f"{where} is {shown(values)}, expected an object")
        self._values, self.where = values, where

    def text(self, key: str, default: str | None = None) -> str | None:
        """A string."""
        return self._typed(key, default, str, "a string")

    def flag(self, key: str, default: bool) -> bool:
        """true or false"""
        return self._typed(key, default, bool, "true or false")

    def count(self, key: str, default: int | None = None) -> int | None:
        """A whole number below 2**31, with a sign: many configs write -1 for no groups."""
        value = self._typed(key, default, int, "a whole number")
        if value is not None and abs(value) >= 2**31:
            raise self._error(key, value, "a whole number below 2**31")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of strings; empty if absent."""
        value = self._typed(key, [], list, "a list of strings")
        if not all(isinstance(item, str) for item in value):
            raise self._error(key, value, "a list of strings")
        return value

    def fields(self, key: str) -> "JsonFields | None":
        """An object inside this one."""
        value = self._values.get(key)
        return None if value is None else JsonFields(value, f"{self.where}'s {key!r}")

    def _typed(self, key: str, default: Any, kind: type, expected: str) -> Any:
        value = self._values.get(key)
        if value is None:
            return default
        if type(value) is not kind:
            raise self._error(key, value, expected)
        return value

    def _error(self, key: str, value: Any, expected: str) -> InputError:
        return InputError(f"{self.where}: {key!r} is {shown(value)}, expected {expected}")
