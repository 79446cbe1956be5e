"""Whole numbers that users write, within the range that sizes and positions have."""

from quant.errors import InputError, bounded

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
