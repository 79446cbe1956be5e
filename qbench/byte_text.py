"""Memory as people write it: 6GiB, 6GB, 500MB."""

import re

from quant.errors import InputError, bounded

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
