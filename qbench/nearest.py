"""Suggestions for an unknown name."""

import difflib
from collections.abc import Iterable


def nearest(name: object, known: Iterable[str], most: int = 1) -> str:
    """ "; did you mean 'x'?", or "" if no known name looks like it; `most` names at most, the likeliest first."""
    near = difflib.get_close_matches(str(name), list(known), n=most)
    return f"; did you mean {', '.join(map(repr, near))}?" if near else ""
