"""Seeded requests: prompts of unlike lengths with unlike amounts of text to come."""

import math
import random
from dataclasses import dataclass

from quant.errors import InputError

# Lengths by default: the least and the most tokens.
PROMPT, NEW = (32, 256), (8, 512)
# Lower bounds: the pointer in a tuple; a Job, its tuple and its entries in lists.
TOKEN_BYTES, JOB_BYTES = 8, 200


@dataclass(frozen=True, slots=True)
class Job:
    """A prompt, and how many tokens are to follow it: all of them, whatever they are."""

    tokens: tuple[int, ...]
    num_new: int


@dataclass(frozen=True, slots=True)
class Workload:
    """prompt, new: the least and the most tokens; document: tokens that every prompt begins with, before its own."""

    requests: int
    prompt: tuple[int, int]
    new: tuple[int, int]
    document: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("prompt", "new"):
            least, most = getattr(self, name)
            if not 1 <= least <= most:
                raise InputError(f"{name} is {least},{most}; expected the least tokens, at least 1, then the most")

    @property
    def name(self) -> str:
        parts = [f"{self.requests} x {self.prompt[0]}-{self.prompt[1]}+{self.new[0]}-{self.new[1]}"]
        return "".join([*parts, f" after {self.document}"] if self.document else parts)

    @property
    def longest(self) -> int:
        return self.document + self.prompt[1] + self.new[1]

    def check_memory(self, limit: int) -> None:
        """raises InputError that names the largest number of requests whose prompts fit into `limit` bytes"""
        one = JOB_BYTES + TOKEN_BYTES * (self.document + self.prompt[0] + self.new[0])
        if self.requests * one > limit:
            raise InputError(
                f"{self.requests} requests need {self.requests * one} bytes for their tokens alone; this machine has "
                f"{limit} bytes of memory; at most {limit // one} such requests fit"
            )

    def jobs(self, vocab_size: int) -> list[Job]:
        """Lengths are drawn evenly on a logarithmic scale, as those of real requests: most short, a few long."""
        draw = random.Random(self.seed)
        document = _tokens(draw, self.document, vocab_size)
        return [
            Job((*document, *_tokens(draw, _length(draw, *self.prompt), vocab_size)), _length(draw, *self.new))
            for _ in range(self.requests)
        ]


def fitting_lengths(
    context: int, document: int, prompt: tuple[int, int] | None, new: tuple[int, int] | None
) -> tuple[tuple[int, int], tuple[int, int]]:
    """(prompt, new): those given; for None PROMPT and NEW, at most the room behind the document.

    Prompts keep their third of the room if neither is given. At least one token is left of each.
    """
    room = context - document
    taken = new[1] if new else max(1, min(NEW[1], room * NEW[1] // (PROMPT[1] + NEW[1])))
    prompt = prompt or _up_to(PROMPT, room - taken)
    return prompt, new or _up_to(NEW, room - prompt[1])


def _up_to(lengths: tuple[int, int], most: int) -> tuple[int, int]:
    least, longest = (max(1, min(length, most)) for length in lengths)
    return least, longest


def _length(draw: random.Random, least: int, most: int) -> int:
    return min(most, int(math.exp(draw.uniform(math.log(least), math.log(most + 1)))))


def _tokens(draw: random.Random, count: int, vocab_size: int) -> tuple[int, ...]:
    return tuple(draw.randrange(vocab_size) for _ in range(count))
