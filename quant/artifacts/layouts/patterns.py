"""Regular expressions that a file brings, matched in time that does not explode.

Python's own matcher backtracks: `(.*)*(.*)*X` takes it years. Here each part of a pattern maps a set of start
positions in the text to the set of its end positions, and is followed once from each position. The time is at most
pattern x text x text.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from re import _constants as op  # pyright: ignore[reportAttributeAccessIssue]
from re import _parser  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any

from quant.errors import InputError, shown

MOST_CHARACTERS = 1000  # of a pattern; those of published models have below 200
MOST_TEXT = 1000  # of the matched text, the name of a module
MOST_COUNT = 1000  # in {m,n}
MOST_DEPTH = 50  # of groups in groups: a text is followed by recursion

Ends = frozenset[int]
CATEGORIES: dict[Any, Callable[[str], bool]] = {
    op.CATEGORY_DIGIT: str.isdecimal,
    op.CATEGORY_NOT_DIGIT: lambda c: not c.isdecimal(),
    op.CATEGORY_SPACE: str.isspace,
    op.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
    op.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
    op.CATEGORY_NOT_WORD: lambda c: not (c.isalnum() or c == "_"),
}


class Pattern:
    """raises InputError for one that is no regular expression, too long, or needs backtracking: \\1, (?>...), (?i)"""

    def __init__(self, text: str, where: str) -> None:
        if len(text) > MOST_CHARACTERS:
            raise InputError(f"{where}: a pattern of {len(text)} characters, expected at most {MOST_CHARACTERS}")
        try:
            parsed = _parser.parse(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise InputError(f"{where}: {shown(text)} is no regular expression ({error})") from None
        if parsed.state.flags & ~re.UNICODE.value:
            raise InputError(f"{where}: pattern {shown(text)} sets flags, which are not read here")
        self._nodes = list(parsed)
        unknown = next(_unknown(self._nodes), None)
        if unknown is not None:
            raise InputError(f"{where}: pattern {shown(text)} has {unknown}, which is not read here")

    def matches(self, text: str) -> bool:
        """Whether the pattern matches the beginning of the text, as `re.match` decides it."""
        return len(text) <= MOST_TEXT and bool(_Walk(text).sequence(self._nodes, frozenset({0})))


@lru_cache(maxsize=1024)
def compiled(text: str, where: str) -> Pattern:
    """The pattern of the text; raises InputError as `Pattern`"""
    return Pattern(text, where)


REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT)
PLAIN = (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN)
ANCHORS = (op.AT_BEGINNING, op.AT_BEGINNING_STRING, op.AT_END, op.AT_END_STRING, op.AT_BOUNDARY, op.AT_NON_BOUNDARY)


def _unknown(nodes: Iterable[tuple[Any, Any]], depth: int = 0) -> Iterator[str]:
    """The parts that `_Walk` does not follow."""
    if depth > MOST_DEPTH:
        yield f"groups nested deeper than {MOST_DEPTH}"
        return
    for kind, value in nodes:
        if kind in REPEATS:
            least, most, body = value
            if least > MOST_COUNT or (most is not op.MAXREPEAT and most > MOST_COUNT):
                yield f"a count above {MOST_COUNT}"
            yield from _unknown(body, depth + 1)
        elif kind is op.SUBPATTERN:
            _, on, off, body = value
            if on or off:
                yield "flags"
            yield from _unknown(body, depth + 1)
        elif kind is op.BRANCH:
            for body in value[1]:
                yield from _unknown(body, depth + 1)
        elif kind in (op.ASSERT, op.ASSERT_NOT):
            if value[0] < 0:
                yield "a look behind"
            yield from _unknown(value[1], depth + 1)
        elif kind not in PLAIN and not (kind is op.AT and value in ANCHORS):
            yield str(kind).lower()


class _Walk:
    """One text. The ends of each part from each position are computed once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._known: dict[tuple[int, int], Ends] = {}

    def sequence(self, nodes: Iterable[tuple[Any, Any]], starts: Ends) -> Ends:
        for node in nodes:
            starts = frozenset().union(*(self._ends(node, start) for start in starts))
            if not starts:
                break
        return starts

    def _ends(self, node: tuple[Any, Any], start: int) -> Ends:
        key = (id(node), start)
        if key not in self._known:
            self._known[key] = self._find(node[0], node[1], start)
        return self._known[key]

    def _find(self, kind: Any, value: Any, start: int) -> Ends:
        here = frozenset({start})
        if kind in PLAIN:
            fits = start < len(self.text) and _fits(kind, value, self.text[start])
            return frozenset({start + 1}) if fits else frozenset()
        if kind is op.AT:
            return here if self._is_at(value, start) else frozenset()
        if kind is op.SUBPATTERN:
            return self.sequence(value[3], here)
        if kind is op.BRANCH:
            return frozenset().union(*(self.sequence(body, here) for body in value[1]))
        if kind in REPEATS:
            least, most, body = value
            return self._repeat(least, most, body, here)
        return here if bool(self.sequence(value[1], here)) is (kind is op.ASSERT) else frozenset()

    def _repeat(self, least: int, most: Any, body: Any, ends: Ends) -> Ends:
        for _ in range(least):
            before, ends = ends, self.sequence(body, ends)
            if ends == before:
                break
        found, new, times = ends, ends, least
        while new and (most is op.MAXREPEAT or times < most):
            new, times = self.sequence(body, new) - found, times + 1
            found |= new
        return found

    def _is_at(self, anchor: Any, place: int) -> bool:
        text, size = self.text, len(self.text)
        if anchor in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
            return place == 0
        if anchor in (op.AT_END, op.AT_END_STRING):
            before_newline = anchor is op.AT_END and place == size - 1 and text[place] == "\n"
            return place == size or before_newline
        is_word = CATEGORIES[op.CATEGORY_WORD]
        at_edge = (place > 0 and is_word(text[place - 1])) != (place < size and is_word(text[place]))
        return at_edge is (anchor is op.AT_BOUNDARY)


def _fits(kind: Any, value: Any, character: str) -> bool:
    if kind is op.ANY:
        return character != "\n"
    if kind is op.IN:
        negated = value[0][0] is op.NEGATE
        return negated != any(_fits_item(what, each, character) for what, each in value[1 if negated else 0 :])
    return (ord(character) == value) is (kind is op.LITERAL)


def _fits_item(kind: Any, value: Any, character: str) -> bool:
    if kind is op.RANGE:
        return value[0] <= ord(character) <= value[1]
    if kind is op.CATEGORY:
        return CATEGORIES[value](character)
    return ord(character) == value
