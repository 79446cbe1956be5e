"""Two models on the same blocks of text: what is common to both cancels, so that small differences show."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from qbench.statistics.estimate import Estimate
from qbench.statistics.studentized import block_mean
from quant.errors import InputError

# {unit, tokens: [int], nll: [sums], kld: [sums], same_top: [sums]}, one entry a block; also units: [words or bytes]
# where the protocol tells perplexity by those
Blocks = Mapping[str, Any]


def perplexity_ratio(blocks_a: Blocks, blocks_b: Blocks) -> Estimate:
    """Perplexity of B over that of A: exp of the mean difference of negative log-likelihood, by token, word or byte.

    raises   InputError for blocks that do not pair
    """
    difference, tokens = _difference(blocks_a, blocks_b, "nll")
    return block_mean(difference, blocks_a.get("units", tokens)).exp()


def kld_difference(blocks_a: Blocks, blocks_b: Blocks) -> Estimate:
    """Mean KL divergence of B minus that of A, nats, both from the same reference. raises InputError as above"""
    return block_mean(*_difference(blocks_a, blocks_b, "kld"))


def same_top_difference(blocks_a: Blocks, blocks_b: Blocks) -> Estimate:
    """Share of tokens that the model ranks first as its reference does, B minus A. raises InputError as above"""
    return block_mean(*_difference(blocks_a, blocks_b, "same_top"))


def _difference(blocks_a: Blocks, blocks_b: Blocks, what: str) -> tuple[np.ndarray, np.ndarray]:
    """(sums of B - sums of A, tokens) of each block."""
    if blocks_a["unit"] != blocks_b["unit"] or list(blocks_a["tokens"]) != list(blocks_b["tokens"]):
        sides = " and ".join(_described(blocks) for blocks in (blocks_a, blocks_b))
        raise InputError(f"blocks do not pair: {sides}; measure both on the same text under the same protocol")
    return np.subtract(blocks_b[what], blocks_a[what]), np.asarray(blocks_a["tokens"])


def _described(blocks: Blocks) -> str:
    return f"{len(blocks['tokens'])} {blocks['unit']}s of {sum(blocks['tokens'])} tokens"
