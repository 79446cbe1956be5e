"""JSON objects from files that may be anything."""

import json
from pathlib import Path
from typing import Any

from quant.errors import InputError
from quant.regular_file import check_is_no_dead_link, check_is_no_pointer, read_regular

MOST_DIGITS = 300  # a float has at most 309; the usual model_max_length of tokenizers, int(1e30), has 31
MOST_BYTES = 256 << 20  # the tokenizer of 262,144 words that Gemma 3 has takes 33 MB


def read_json(path: Path) -> dict[str, Any]:
    """The object in the file. raises InputError if it is missing, unreadable, too large, no JSON or no object."""
    check_is_no_dead_link(path)
    try:
        text = read_regular(path, MOST_BYTES)
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from error
    return parse_json(text, str(path))


def parse_json(text: bytes, where: str) -> dict[str, Any]:
    """The object that `text` holds; a key given twice is an error, since JSON readers differ on which one wins."""
    check_is_no_pointer(text, where)
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_int=_number)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise InputError(f"{where}: not valid JSON ({error}); fetch the file again") from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected a JSON object, got {type(value).__name__}")
    return value


def _number(text: str) -> int:
    """A number that a float can hold: JSON has no largest one."""
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} digits, expected at most {MOST_DIGITS}")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"key {twice!r} is there twice")
    return result
