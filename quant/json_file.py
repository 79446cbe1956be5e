"""JSON objects from files that may be anything."""

import json
from pathlib import Path
from typing import Any

from quant.errors import InputError


def read_json(path: Path) -> dict[str, Any]:
    """The object in the file. raises InputError if it is missing, unreadable, no JSON or no object."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from error
    return parse_json(text, str(path))


def parse_json(text: bytes, where: str) -> dict[str, Any]:
    """The object that `text` holds; a key given twice is an error, since JSON readers differ on which one wins."""
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise InputError(f"{where}: not valid JSON ({error}); fetch the file again") from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected a JSON object, got {type(value).__name__}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"key {twice!r} is there twice")
    return result
