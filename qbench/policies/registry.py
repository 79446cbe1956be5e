"""Names of policies: `@policy("h2o")` registers a class, `parse_policy("h2o:budget=512")` makes one."""

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, TypeVar

from qbench.nearest import nearest
from qbench.policies.budget import Budget
from qbench.policies.policy import CachePolicy
from quant.errors import InputError
from quant.json_data import JsonData

SomePolicy = TypeVar("SomePolicy", bound=type[CachePolicy])

_POLICIES: dict[str, type[CachePolicy]] = {}


def policy(name: str) -> Callable[[SomePolicy], SomePolicy]:
    """Register a class under the name that users write. raises ValueError for a name that is taken"""

    def register(kind: SomePolicy) -> SomePolicy:
        if name in _POLICIES:
            raise ValueError(f"policy {name!r} is registered twice")
        kind.name = name
        _POLICIES[name] = kind
        return kind

    return register


def policy_names() -> list[str]:
    return list(_POLICIES)


@dataclass(frozen=True, slots=True)
class Listed(JsonData):
    """One policy as `qbench policies` shows it. usage: its options with their defaults"""

    policy: str
    usage: str
    description: str


def listed() -> list[Listed]:
    """All policies in the order of their registration."""
    return [Listed(name, usage(kind), (kind.__doc__ or "").split("\n")[0]) for name, kind in _POLICIES.items()]


def usage(kind: type[CachePolicy]) -> str:
    """The options of a policy with their defaults, as in "h2o:budget=20%,recent=0.5"."""
    if kind.notation is not None:
        return kind.notation
    options = [f"{each.name}={'...' if each.default is MISSING else each.default}" for each in fields(kind)]  # type: ignore[arg-type]
    return f"{kind.name}:{','.join(options)}" if options else kind.name


def parse_policy(text: str) -> CachePolicy:
    """ "snapkv:budget=512,window=32" -> the policy; the first option's name may be left out.

    raises   InputError for an unknown name or option, and for a value that the policy cannot have
    """
    name, colon, rest = text.partition(":")
    if name not in _POLICIES:
        raise InputError(f"unknown policy {text!r}; known: {', '.join(_POLICIES)}{nearest(name, _POLICIES)}")
    kind = _POLICIES[name]
    if colon and not rest:
        raise InputError(f"policy {text!r}: options are missing after the colon; expected {usage(kind)}")
    try:
        own = kind.parse_options(rest)
    except InputError as error:
        raise InputError(f"policy {text!r}: {error}") from error
    return _from_pairs(text, kind, rest) if own is None else own


def _from_pairs(text: str, kind: type[CachePolicy], rest: str) -> CachePolicy:
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    for index, option in enumerate(rest.split(",") if rest else []):
        key, equals, value = option.partition("=")
        if not equals and index == 0 and known:
            key, value = next(iter(known)), option
        if key not in known or key in given:
            what = "given twice" if key in given else f"unknown{nearest(key, known)}"
            raise InputError(f"policy {text!r}: option {key!r} is {what}; expected {usage(kind)}")
        given[key] = _value(text, known[key], value)
    missing = [each.name for each in known.values() if each.default is MISSING and each.name not in given]
    if missing:
        raise InputError(f"policy {text!r} needs {', '.join(missing)}; expected {usage(kind)}")
    try:
        return kind(**given)
    except InputError as error:
        raise InputError(f"policy {text!r}: {error}") from error


def _value(text: str, option: Field[Any], value: str) -> Any:
    if option.type is Budget:
        try:
            return Budget.parse(value)
        except InputError as error:
            raise InputError(f"policy {text!r}: {error}") from error
    try:
        return option.type(value)  # type: ignore[operator]
    except ValueError as error:
        kind = {int: "a whole number", float: "a number"}.get(option.type, "another value")  # type: ignore[arg-type]
        raise InputError(f"policy {text!r}: {option.name} is {value!r}, expected {kind}") from error
