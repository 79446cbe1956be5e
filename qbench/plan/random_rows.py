"""Prompts of random tokens, for runs that are timed or whose memory is measured."""

from random import Random


def random_rows(vocab_size: int, batch: int, count: int) -> list[list[int]]:
    """batch rows of count token ids, always the same ones"""
    rng = Random(0)
    return [[rng.randrange(vocab_size) for _ in range(count)] for _ in range(batch)]
