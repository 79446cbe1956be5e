"""Text between `<!-- qbench:NAME begin -->` and `<!-- qbench:NAME end -->`, written by commands and never by hand."""

import re
from pathlib import Path

from quant.atomic import atomic_file
from quant.errors import InputError
from quant.regular_file import read_regular_text


def replace_between_markers(path: str | Path, name: str, text: str) -> bool:
    """Puts `text` between the markers of a Markdown file, all else untouched; False if it was there already.

    raises   InputError if the file cannot be read, or has not exactly one such pair
    """
    path = Path(path)
    try:
        old = read_regular_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read: {error}") from error
    begin, end = f"<!-- qbench:{name} begin -->", f"<!-- qbench:{name} end -->"
    pairs = re.findall(f"{re.escape(begin)}.*?{re.escape(end)}", old, flags=re.DOTALL)
    if len(pairs) != 1 or old.count(begin) != 1 or old.count(end) != 1:
        raise InputError(f"{path}: expected one pair of {begin} and {end}, got {old.count(begin)} and {old.count(end)}")
    new = old.replace(pairs[0], f"{begin}\n{text.strip()}\n{end}")
    if new == old:
        return False
    with atomic_file(path) as temporary:
        temporary.write_text(new, encoding="utf-8")
    return True
