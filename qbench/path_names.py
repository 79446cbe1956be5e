"""The path of a product by its number of tokens, as the name of its implementation states it.

"avx512_vnni direct, tile from 33 tokens, int8x256 from 64": the instruction set once, and again if it is another.
"""

import re
from collections.abc import Callable

from quant.present import present

MOST_TOKENS = 512  # of a prefill: beyond, nothing else is chosen
STEP = re.compile(r"(.*) from (\d+)( tokens)?")


def tell_paths(choice: Callable[[int], tuple[str, str]]) -> str:
    """choice   number of tokens -> instruction set and path; each holds for one run of numbers"""
    before, path = choice(1)
    steps = [f"{before} {path}"]
    for first in changes(choice, 1, MOST_TOKENS):
        isa, path = choice(first)
        unit = " tokens" if len(steps) == 1 else ""
        steps.append(f"{'' if isa == before else isa + ' '}{path} from {first}{unit}")
        before = isa
    return ", ".join(steps)


def changes(choice: Callable[[int], tuple[str, str]], first: int, last: int) -> list[int]:
    """Numbers after `first`, up to `last`, from which on another choice holds."""
    if choice(first) == choice(last):
        return []
    if last == first + 1:
        return [last]
    middle = (first + last) // 2
    return changes(choice, first, middle) + changes(choice, middle, last)


def path_at(name: str, num_tokens: int) -> str:
    """The part of an implementation's name for this number of tokens: "cpu-q4_k[avx512_vnni int8x256]"."""
    head, bracket, inside = name.partition("[")
    steps = inside.removesuffix("]").split(", ")
    if not bracket or not all(map(STEP.fullmatch, steps[1:])):
        return name
    isa, _, path = steps[0].partition(" ")
    for step in steps[1:]:
        told, first, _ = present(STEP.fullmatch(step)).groups()
        if num_tokens < int(first):
            break
        *other, path = told.split(" ", 1) if told.startswith(("avx", "amx", "scalar")) else (told,)
        isa = other[0] if other else isa
    return f"{head}[{isa}{path and ' ' + path}]"
