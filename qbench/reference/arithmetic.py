"""Sums of two numbers, worked column by column as on paper: `27+35:7+5=12,2+3+1=6,62`."""

from random import Random

from qbench.reference.split import is_heldout

LARGEST = 99


def working(a: int, b: int) -> str:
    """The text after the colon: units, tens with the carry, and the result."""
    units = a % 10 + b % 10
    steps = [f"{a % 10}+{b % 10}={units}"]
    if a > 9 or b > 9:
        carry = units // 10
        steps.append(f"{a // 10}+{b // 10}" + "+1" * carry + f"={a // 10 + b // 10 + carry}")
    return ",".join([*steps, str(a + b)])


def problem(rng: Random, heldout: bool) -> tuple[int, int]:
    """Two numbers up to 99 each; one pair in ten is held out. Single digits are too few to hold any out."""
    while True:
        a, b = rng.randint(0, LARGEST), rng.randint(0, LARGEST)
        if rng.random() < 0.1 and not heldout:
            return a % 10, b % 10
        if max(a, b) > 9 and is_heldout("sum", a, b) == heldout:
            return a, b


def sums(rng: Random, heldout: bool = False, count: int | None = None) -> str:
    """One document: a column of worked sums."""
    problems = (problem(rng, heldout) for _ in range(count or rng.randint(6, 24)))
    return "".join(f"{a}+{b}:{working(a, b)}\n" for a, b in problems)
