"""The values of a suite's file, checked against the fields that they become."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from qbench.words.written import nearest
from quant.errors import InputError, shown

WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Mapping: "names with values"}


def fields_of(
    document: Any,
    kind: type,
    where: str,
    names: Sequence[str],
    lists: Mapping[str, tuple[type, tuple[str, ...]]] | None = None,
    sections: Collection[str] = (),
) -> dict[str, Any]:
    """The mapping with its keys and value types checked against the fields of a dataclass.

    names      fields that the mapping may have
    lists      further keys, whose values are lists of one type or of these words; a single value is a list of one
    sections   fields that are taken as they are
    raises     InputError for no mapping, an unknown key, or a value of another type
    """
    known = list(dict.fromkeys([*names, *(lists or ())]))
    if not isinstance(document, Mapping):
        raise InputError(f"{where}: got {type(document).__name__}, expected a mapping of {', '.join(known)}")
    for key in document:
        if key not in known:
            raise InputError(f"{where}: unknown key {key!r}; known: {', '.join(known)}{nearest(key, known)}")
    types, checked = get_type_hints(kind), {}
    for key, value in document.items():
        if key in sections or (value is None and key in types and type(None) in get_args(types[key])):
            checked[key] = value
        elif value is None:  # null means absent, as in every config
            continue
        elif lists and key in lists:
            checked[key] = _list(key, value, *lists[key], where)
        else:
            checked[key] = _one(key, value, types[key], where)
    return checked


def names_of(kind: type) -> list[str]:
    """All fields of a dataclass."""
    return [field.name for field in fields(kind)]


def _list(key: str, value: Any, kind: type, words: tuple[str, ...], where: str) -> tuple:
    items = value if isinstance(value, list) else [value]
    if not all(item in words or (isinstance(item, kind) and not isinstance(item, bool)) for item in items):
        expected = " or ".join(["names" if kind is str else "numbers", *words])
        raise InputError(f"{where}: {key} is {shown(value)}, expected a list of {expected}")
    return tuple(items)


def _one(key: str, value: Any, hint: Any, where: str) -> Any:
    """A value of the field's type; of `T | None`, of T; a list becomes the tuple that a field of many names is."""
    kind = next(one for one in get_args(hint) if one is not type(None)) if isinstance(hint, UnionType) else hint
    if get_origin(kind) is tuple:  # tuple[str, ...]
        return _list(key, value, get_args(kind)[0], (), where)
    kind = get_origin(kind) or kind  # Mapping[str, Any] -> Mapping
    is_number = kind is float and isinstance(value, int) and not isinstance(value, bool)
    if not is_number and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
        raise InputError(f"{where}: {key} is {shown(value)}, expected {WORDS[kind]}")
    return value
