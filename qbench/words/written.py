"""Words that users write: names and suggestions for unknown ones, whole numbers, amounts of memory, files and paths."""

import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from quant.errors import InputError, bounded
from quant.regular_file import read_regular_text


def nearest(name: object, known: Iterable[str], most: int = 1) -> str:
    """ "; did you mean 'x'?", or "" if no known name looks like it; `most` names at most, the likeliest first."""
    near = difflib.get_close_matches(str(name), list(known), n=most)
    return f"; did you mean {', '.join(map(repr, near))}?" if near else ""


def names_in(text: str) -> tuple[str, ...]:
    """ "a, b" -> ("a", "b"); an empty text is one empty name, for its reader to refuse"""
    return tuple(name.strip() for name in text.split(","))


LARGEST = 2**31 - 1  # limit of a kernel's sizes and of a token's position


def whole_number(text: str, least: int = 0) -> int:
    """The number in a text of decimal digits.

    raises   InputError for other text, and for a number below `least` or above LARGEST
    """
    try:
        number = int(text)
    except ValueError:  # also for more than 4300 digits, which Python does not read
        number = None
    if number is None or not least <= number <= LARGEST:
        raise InputError(f"got {bounded(text, 40)!r}, expected a whole number from {least} to {LARGEST}")
    return number


UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}

MOST_BYTES = 1 << 50  # 1024TiB: more than any machine has, and far below the sizes that kernels compute with
MOST_SHARE = 1e6


def parse_bytes(text: str) -> int:
    """The number of bytes: a number with a unit of powers of ten (GB) or of two (GiB).

    raises   InputError for other text, for less than one byte, and for more than MOST_BYTES
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", text.strip(), re.IGNORECASE)
    prefix = match and (match[2].upper() if match[3] or match[2].upper() != "K" else "k") + match[3].lower()
    if match is None or prefix not in UNITS or float(match[1]) * UNITS[prefix] < 1:
        raise InputError(f"{text!r} is no amount of memory; write it like 6GiB, 6GB or 500MB")
    if (num_bytes := float(match[1]) * UNITS[prefix]) > MOST_BYTES:
        raise InputError(f"{bounded(text, 40)!r} is more than any machine has; expected at most {MOST_BYTES >> 40}TiB")
    return int(num_bytes)


def written_bytes(num_bytes: float) -> str:
    """A text that `parse_bytes` reads, of the largest unit that divides the number: 2097152 -> "2MiB"."""
    unit = max((name for name, size in UNITS.items() if num_bytes % size == 0), key=UNITS.__getitem__)
    return f"{num_bytes / UNITS[unit]:.0f}{unit}B"


def parse_share(text: str) -> float | None:
    """Share in a text such as "40%"; None if the text has no %. raises InputError for 0%, less, and no number"""
    number = text.strip().removesuffix("%")
    if number == text.strip():
        return None
    try:
        share = float(number) / 100
    except ValueError as error:
        raise InputError(f"memory {text!r}: expected a share such as 40%, or a size such as 2GiB") from error
    if not 0 < share <= MOST_SHARE:
        raise InputError(
            f"memory {bounded(text, 40)!r}: expected more than 0%, at most {100 * MOST_SHARE:.0f}%, or a size like 2GiB"
        )
    return share


def read_text_file(path: str | Path, content: str) -> str:
    """The UTF-8 text of a file, byte for byte: a carriage return is scored like any character.

    content  its name in messages, such as "chat template"
    raises   InputError for a file that cannot be read
    """
    try:
        return read_regular_text(path, newline="")
    except OSError as error:
        raise InputError(f"{path}: cannot read the {content}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        noun = content.split()[-1]
        raise InputError(f"{path}: not UTF-8 at byte {error.start}; convert the {noun} to UTF-8") from error


def real_path(path: str | Path) -> Path:
    """Absolute, and without links. Links in a loop stay, so that whoever opens the file gets the system's reason."""
    return Path(os.path.realpath(path))  # Path.resolve raises RuntimeError for a loop
