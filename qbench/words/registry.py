"""`Registry`: classes by the names that users write with options, as in "snapkv:budget=512,window=32"."""

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, ClassVar, Generic, Self, TypeVar

from qbench.words.written import LARGEST, nearest
from quant.errors import InputError, bounded

KINDS = {int: f"a whole number up to {LARGEST}", float: f"a number up to {LARGEST}"}


class Named:
    """Base of classes with a name in a registry. Subclasses are frozen dataclasses of their options.

    name      as users write it, set when the class is registered
    notation  how users write it with its options, if these are not "name=value" pairs
    """

    name: ClassVar[str]
    notation: ClassVar[str | None] = None

    @classmethod
    def parse_options(cls, options: str) -> Self | None:
        """The object for options in a notation of its own; None: "name=value" pairs, see `Registry.parse`

        raises   InputError for options that the class does not have
        """
        return None


@dataclass(frozen=True, slots=True)
class Entry:
    """One class of a registry. usage: its options with their defaults"""

    name: str
    usage: str
    description: str


SomeNamed = TypeVar("SomeNamed", bound=Named)
SomeClass = TypeVar("SomeClass", bound=type[Named])


class Registry(Generic[SomeNamed]):
    """Classes of one kind. noun: the word for the kind in messages"""

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self._classes: dict[str, type[SomeNamed]] = {}

    def register(self, name: str) -> Callable[[SomeClass], SomeClass]:
        """Register a class under the name that users write. raises ValueError for a name that is taken"""

        def add(kind: SomeClass) -> SomeClass:
            if name in self._classes:
                raise ValueError(f"{self.noun} {name!r} is registered twice")
            kind.name = name
            self._classes[name] = kind  # type: ignore[assignment] - a decorator cannot say that its class is SomeNamed
            return kind

        return add

    def names(self) -> list[str]:
        return list(self._classes)

    def entries(self) -> list[Entry]:
        """All classes in the order of their registration."""
        rows = self._classes.items()
        return [Entry(name, usage(kind), (kind.__doc__ or "").split("\n")[0]) for name, kind in rows]

    def parse(self, text: str) -> SomeNamed:
        """ "snapkv:budget=512,window=32" -> the object; the first option's name may be left out.

        raises   InputError for an unknown name or option, and for a value that the class cannot have
        """
        name, colon, rest = text.partition(":")
        if name not in self._classes:
            known = ", ".join(self._classes)
            raise InputError(f"unknown {self.noun} {text!r}; known: {known}{nearest(name, self._classes)}")
        kind = self._classes[name]
        try:
            if colon and not rest:
                raise InputError(f"options are missing after the colon; expected {usage(kind)}")
            own = kind.parse_options(rest)
            return kind(**_pairs(kind, rest)) if own is None else own
        except InputError as error:
            raise InputError(f"{self.noun} {text!r}: {error}") from error


def usage(kind: type[Named]) -> str:
    """The options of a class with their defaults, as in "h2o:budget=20%,recent=0.5"."""
    if kind.notation is not None:
        return kind.notation
    options = [f"{each.name}={'...' if each.default is MISSING else each.default}" for each in fields(kind)]  # type: ignore[arg-type]
    return f"{kind.name}:{','.join(options)}" if options else kind.name


def _pairs(kind: type[Named], rest: str) -> dict[str, Any]:
    """The arguments of a class from "name=value" pairs."""
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    for index, option in enumerate(rest.split(",") if rest else []):
        key, equals, value = option.partition("=")
        if not equals and index == 0 and known:
            key, value = next(iter(known)), option
        if key not in known or key in given:
            what = "given twice" if key in given else f"unknown{nearest(key, known)}"
            raise InputError(f"option {key!r} is {what}; expected {usage(kind)}")
        given[key] = _value(known[key], value)
    missing = [each.name for each in known.values() if each.default is MISSING and each.name not in given]
    if missing:
        raise InputError(f"needs {', '.join(missing)}; expected {usage(kind)}")
    return given


def _value(option: Field[Any], value: str) -> Any:
    parse = getattr(option.type, "parse", option.type)
    try:
        found = parse(value)  # type: ignore[operator]
        if isinstance(found, (int, float)) and not abs(found) <= LARGEST:  # NaN, too
            raise ValueError
        return found
    except InputError:
        raise
    except ValueError as error:
        kind = KINDS.get(option.type, "another value")  # type: ignore[arg-type]
        raise InputError(f"{option.name} is {bounded(value, 40)!r}, expected {kind}") from error
