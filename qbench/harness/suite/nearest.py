"""What someone may have meant by a name that is none."""

import difflib
from collections.abc import Iterable


def nearest(name: object, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?", or "" where nothing known looks like it."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
