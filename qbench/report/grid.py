"""Rows of cells as a Markdown table that also reads in a terminal."""

from collections.abc import Sequence


def markdown_grid(rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    """The first row is the headings; columns are padded, numeric ones to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(numeric))]
    rules = [
        ("-" * (width - 1) + ":") if is_number else "-" * width
        for width, is_number in zip(widths, numeric, strict=True)
    ]
    lines = [
        [
            text.rjust(width) if is_number else text.ljust(width)
            for text, width, is_number in zip(row, widths, numeric, strict=True)
        ]
        for row in rows
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rules, *lines[1:]])
