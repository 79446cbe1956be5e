"""Rules that pick points of a grid: a suite's `exclude`, and `--only` of the command line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from qbench.run.axes import AXIS, NAMES, Axis
from qbench.run.case import Case
from qbench.run.renamed import check_axis
from qbench.words.written import nearest
from quant.errors import InputError


@dataclass(frozen=True, slots=True)
class Rule:
    """Points whose axes have one of these values. `sections`: the measurements that the rule is about; empty: all.

    axes   (axis, patterns as fnmatch reads them)
    """

    axes: tuple[tuple[str, tuple[str, ...]], ...]
    sections: tuple[str, ...] = ()

    @classmethod
    def of(cls, document: Any, where: str, sections: Sequence[str] = ()) -> "Rule":
        """The rule of a mapping axis -> value or list of values, and section -> true.

        raises   InputError for anything else
        """
        known = (*NAMES, *sections)
        if not isinstance(document, Mapping) or not document:
            raise InputError(f"{where}: got {document!r}, expected a mapping of {', '.join(known)}")
        axes, named = [], []
        for key, value in document.items():
            check_axis(key, value, where)
            if key not in known:
                raise InputError(f"{where}: unknown axis {key!r}; known: {', '.join(known)}{nearest(key, known)}")
            if key in sections:
                if value is not True:
                    raise InputError(f"{where}: {key} is {value!r}, expected true")
                named.append(key)
            else:
                axes.append((key, _patterns(key, value, where)))
        return cls(tuple(axes), tuple(named))

    def matches(self, point: Case) -> bool:
        return all(any(_is_alike(AXIS[name], point, one) for one in patterns) for name, patterns in self.axes)

    def matches_texts(self, texts: Mapping[str, str]) -> bool:
        """The same for a row of a table. texts: axis -> its value in words; a row without the axis does not match"""
        return all(any(fnmatchcase(texts.get(name, ""), one) for one in patterns) for name, patterns in self.axes)

    def __str__(self) -> str:
        return ",".join([*(f"{name}={'|'.join(patterns)}" for name, patterns in self.axes), *self.sections])


def _is_alike(axis: Axis, point: Case, pattern: str) -> bool:
    """Whether the value of a point has this pattern; bytes may be written in any unit."""
    if fnmatchcase(axis.text(point), pattern):
        return True
    try:
        return axis.read is not None and axis.read(pattern) == axis.value(point)
    except InputError:
        return False


def _patterns(key: str, value: Any, where: str) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(item, (str, int)) and not isinstance(item, bool) for item in values):
        raise InputError(f"{where}: {key} is {value!r}, expected a name, a number or a list of them")
    return tuple(map(str, values))


def parse_only(text: str) -> Rule:
    """ "recipe=q4_k_m,model=ref:*" as the rule that both hold; alternatives are written as a|b.

    raises   InputError for an unknown axis, or a part without "="
    """
    parts = {}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not (name and equals and value):
            raise InputError(f"--only {text}: {part!r} is not AXIS=VALUE; axes are {', '.join(NAMES)}")
        if name in parts:
            raise InputError(f"--only {text}: {name} stands twice; write {name}=A|B for one or the other")
        parts[name] = value.split("|")
    return Rule.of(parts, f"--only {text}")
