"""Rows of cells as a Markdown table that also reads in a terminal."""

from collections.abc import Sequence

from qbench.printable import printable


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
