"""Text that users read: made safe for a terminal, counts and commits in sentences, and tables in Markdown."""

import json
import re
from collections.abc import Collection, Sequence

LINES = "\n\t"  # the control characters of a text of several lines

# C0 and C1 controls, of which ESC and CSI begin the commands of a terminal; lone surrogates, which no encoding has;
# and characters that change the direction or the end of a line: source https://www.unicode.org/reports/tr9/
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, keep: str = "") -> str:
    """Return the text with control characters as JSON's escapes: ESC becomes "\\u001b".

    JSON stays JSON of the same meaning, because only strings can hold these characters.
    keep   control characters that stay
    """
    return UNSAFE.sub(lambda found: found[0] if found[0] in keep else json.dumps(found[0])[1:-1], text)


# The definition is in `qbench.speed.shares`.
ROOFLINE_LEGEND = (
    "share of the roofline: the median over the rounds of least time / time, at the bandwidth of the same round"
)


def count(number: float, thing: str) -> str:
    """ "1 core", "2 cores" """
    return f"{number:.0f} {thing}" + ("" if number == 1 else "s")


def short_commit(commit: str | None, dirty: bool | None) -> str:
    if not isinstance(commit, str):
        return "unknown"
    return commit[:10] + ("+changes" if dirty else "")


def units_notes(units: Sequence[Collection[str]]) -> list[str]:
    """The units that operations are compared with; nothing if no row names any. units: of each row; empty if older"""
    names = sorted({name for of_row in units for name in of_row})
    older = sum(not of_row for of_row in units)
    if not names:
        return []
    rest = f", in {count(older, 'older row')} at the arithmetic that ran" if older else ""
    return [f"operations at the strongest unit that could do them: {', '.join(names)}{rest}"]


def markdown_grid(rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    """The first row is the headings; columns are padded, numeric ones to the right.

    Cells may come from files of strangers, so control characters become escapes.
    """
    columns = [[printable(text) for text in column] for column in zip(*rows, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    rules = [
        ("-" * (width - 1) + ":") if is_number else "-" * width
        for width, is_number in zip(widths, numeric, strict=True)
    ]
    padded = [
        [text.rjust(width) if is_number else text.ljust(width) for text in column]
        for column, width, is_number in zip(columns, widths, numeric, strict=True)
    ]
    lines = ["| " + " | ".join(line) + " |" for line in zip(*padded, strict=True)]
    return "\n".join([lines[0], "| " + " | ".join(rules) + " |", *lines[1:]])
