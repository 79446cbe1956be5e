"""Nested structure: lines of brackets of four types, each closing bracket decided by the open ones."""

from random import Random

from qbench.reference.split import is_heldout

PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}
CLOSERS = tuple(PAIRS.values())
MAX_DEPTH = 8


def bracket_line(rng: Random, length: int) -> list[str]:
    """A balanced line of `length` brackets (even), at most MAX_DEPTH deep, walking up and down."""
    line, stack = [], []
    while len(line) < length:
        must_close = len(stack) == min(MAX_DEPTH, length - len(line))
        if stack and (must_close or rng.random() < 0.45):
            line.append(PAIRS[stack.pop()])
        else:
            stack.append(rng.choice(tuple(PAIRS)))
            line.append(stack[-1])
    return line


def brackets(rng: Random, heldout: bool = False, num_lines: int | None = None) -> str:
    """One document of bracket lines, one space between brackets, so that each is one token."""
    lines: list[str] = []
    count = num_lines or rng.randint(2, 8)
    while len(lines) < count:
        line = " ".join(bracket_line(rng, 2 * rng.randint(8, 24)))
        if is_heldout("brackets", line) == heldout:
            lines.append(line)
    return "".join(f"nest {line}\n" for line in lines)
