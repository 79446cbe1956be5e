"""`JsonData`: frozen dataclasses that are written as JSON objects and read back."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from quant.errors import shown


class JsonData:
    """Base of dataclasses whose fields are JSON values, other such classes, and tuples, lists and mappings of them.

    json_keys   field -> its key, if that is another word
    json_omits  fields that are left out of the document while they have their default
    json_flat   fields whose own keys are among those of this document; the field is None if no such key is there
    """

    __slots__ = ()
    json_keys: ClassVar[Mapping[str, str]] = {}
    json_omits: ClassVar[tuple[str, ...]] = ()
    json_flat: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Any]:
        """The JSON object, its keys in the order of the fields."""
        return _document(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """raises ValueError for an unknown key, a missing one, or a value of another type than its field's"""
        return instance_of(cls, document)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonRow(JsonData):
    """A document that older or newer code may have written: lacking and unknown keys come back as they were.

    lacks     keys that the document did not have
    explicit  keys that it had although `json_omits` leaves them out
    rest      (key, value) of those that no field is for
    """

    lacks: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    explicit: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    rest: tuple[tuple[str, Any], ...] = field(default=(), repr=False)


LARGEST = {int: 2**63 - 1, float: sys.float_info.max}  # JSON has numbers of any length
HIDDEN = ("lacks", "explicit", "rest")  # fields of JsonRow that are no keys


def plain(value: Any) -> Any:
    """A value of a field as JSON has it."""
    if isinstance(value, JsonData):
        return value.to_json()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value] if _is_deep(value) else list(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


def _is_deep(items: Any) -> bool:
    """Whether the first item is no plain number or text; lists hold values of one kind."""
    return bool(items) and not isinstance(items[0], (int, float, str))


@cache
def _fields(kind: type) -> tuple[tuple[Field, str, Any], ...]:
    """(field, key, type) of each field."""
    hints = get_type_hints(kind)
    keys = kind.json_keys
    return tuple((one, keys.get(one.name, one.name), hints[one.name]) for one in fields(kind) if one.name not in HIDDEN)


@cache
def keys_of(kind: type) -> frozenset[str]:
    """The keys that a document of this class may have."""
    keys: set[str] = set()
    for one, key, hint in _fields(kind):
        keys |= frozenset().union(*map(keys_of, _classes_of(hint))) if one.name in kind.json_flat else {key}
    return frozenset(keys)


@cache
def _own_keys(kind: type) -> frozenset[str]:
    """The keys of the fields that are not flat."""
    return frozenset(key for one, key, _ in _fields(kind) if one.name not in kind.json_flat)


def _document(instance: Any) -> dict[str, Any]:
    kind, document = type(instance), {}
    is_row = isinstance(instance, JsonRow)
    lacks, explicit = (instance.lacks, instance.explicit) if is_row else (frozenset(), frozenset())
    for one, key, _ in _fields(kind):
        value = getattr(instance, one.name)
        if one.name in kind.json_flat:
            document |= {} if value is None else value.to_json()
            continue
        may_omit = key in lacks or (one.name in kind.json_omits and key not in explicit)
        if not (may_omit and _is_default(one, value)):
            document[key] = plain(value)
    return document | dict(instance.rest) if is_row else document


def _is_default(one: Field, value: Any) -> bool:
    if one.default_factory is not MISSING:
        return value == one.default_factory()
    return one.default is not MISSING and (value is one.default or value == one.default)


def instance_of(kind: Any, document: Any, classes: Mapping[str, type] = MappingProxyType({})) -> Any:
    """An instance of the class from its document; classes: field -> its class, instead of the hint."""
    if not isinstance(document, Mapping):
        raise ValueError(f"{kind.__name__}: got {type(document).__name__}, expected an object")
    values, lacks, explicit = {}, set(), set()
    for one, key, hint in _fields(kind):
        if one.name in kind.json_flat:
            part = _class_for(hint, document, _own_keys(kind))
            values[one.name] = None if part is None else instance_of(part, _part_of(document, keys_of(part)))
        elif key in document:
            wanted = classes[one.name] | None if one.name in classes else hint
            if not _fits(wanted, document[key]):
                raise ValueError(f"{kind.__name__}: {key} is {shown(document[key])}, expected {_name(wanted)}")
            values[one.name] = _typed(wanted, document[key])
            if one.name in kind.json_omits and _is_default(one, values[one.name]):
                explicit.add(key)
        elif one.name not in kind.json_omits:
            lacks.add(key)
    unknown = [name for name in document if name not in keys_of(kind)]
    if issubclass(kind, JsonRow):
        rest = tuple((name, document[name]) for name in unknown)
        values |= {"lacks": frozenset(lacks), "explicit": frozenset(explicit), "rest": rest}
    elif unknown:
        raise ValueError(f"{kind.__name__}: unknown key {unknown[0]!r}; known: {', '.join(sorted(keys_of(kind)))}")
    required = (key for one, key, _ in _fields(kind) if one.name not in values and _is_required(one))
    if missing := [*required]:
        raise ValueError(f"{kind.__name__} lacks {', '.join(missing)}")
    return kind(**values)


def _fits(hint: Any, value: Any) -> bool:
    """Whether a JSON value is of the hint's type; nested documents check themselves when they are made."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(one, value) for one in arguments)
    if origin is Literal:
        return value in arguments
    if origin in (tuple, list, Sequence):
        if not isinstance(value, (list, tuple)):
            return False
        if origin is tuple and arguments and arguments[-1] is not Ellipsis:
            return len(value) == len(arguments) and all(map(_fits, arguments, value))
        return not arguments or all(_fits(arguments[0], item) for item in value)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(_fits(arguments[1], item) for item in value.values())
    if hint in (int, float):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        is_whole = hint is float or isinstance(value, int) or (is_number and value.is_integer())  # 8e6 bytes are whole
        return is_number and is_whole and abs(value) <= LARGEST[hint]
    if hint in (str, bool):
        return type(value) is hint
    if isinstance(hint, type) and issubclass(hint, JsonData):
        return isinstance(value, Mapping)
    return value is None if hint is type(None) else True


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _is_required(one: Field) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _typed(hint: Any, value: Any) -> Any:
    """A JSON value as the hint has it: nested classes are made, lists become tuples, the rest is as it is."""
    maker = _maker(hint)
    return value if value is None or maker is None else maker(value)


@cache
def _maker(hint: Any) -> Any:
    """The function that makes a value of the hint from JSON; None: JSON has it already."""
    classes = _classes_of(hint)
    if len(classes) > 1:
        return lambda document: instance_of(_class_for(hint, document) or classes[0], document)
    if get_origin(hint) in (Union, UnionType):
        makers = [maker for maker in map(_maker, get_args(hint)) if maker is not None]
        return makers[0] if makers else None
    if isinstance(hint, type) and issubclass(hint, JsonData):
        return hint.from_json
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        item = _maker(arguments[0])
        return tuple if item is None else lambda values: tuple(_typed(arguments[0], value) for value in values)
    if origin is list and _maker(arguments[0]):
        return lambda values: [_typed(arguments[0], value) for value in values]
    if origin in (dict, Mapping) and _maker(arguments[1]):
        return lambda values: {key: _typed(arguments[1], value) for key, value in values.items()}
    return None


@cache
def _classes_of(hint: Any) -> tuple[type[JsonData], ...]:
    """C of `C | None`; C and D of `C | D`."""
    return tuple(one for one in (*get_args(hint), hint) if isinstance(one, type) and issubclass(one, JsonData))


def _class_for(hint: Any, document: Any, apart_from: frozenset[str] = frozenset()) -> Any:
    """The class of the hint that the document is of: it has a key that no other class has, nor `apart_from`."""
    if not isinstance(document, Mapping):
        return None
    return next((one for one, marks in _marks(hint, apart_from) if not marks.isdisjoint(document)), None)


@cache
def _marks(hint: Any, apart_from: frozenset[str]) -> tuple[tuple[type, frozenset[str]], ...]:
    """(class of the hint, keys that distinguish it from the others)"""
    classes = _classes_of(hint)
    others = {one: frozenset().union(*(keys_of(other) for other in classes if other is not one)) for one in classes}
    return tuple((one, keys_of(one) - others[one] - apart_from) for one in classes)


def _part_of(document: Mapping[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key in keys}
