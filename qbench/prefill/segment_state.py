"""Segments that see themselves, and means of the keys and values of the segments before."""

from dataclasses import dataclass

import torch
from torch import Tensor

from qbench.policies.policy import check_at_least
from qbench.prefill.block_lists import BLOCK
from qbench.prefill.pattern import PrefillPattern, Prompt, Summaries, check_block, pattern
from quant.errors import InputError


@pattern("segment-state")
@dataclass(frozen=True)
class SegmentState(PrefillPattern):
    """Each segment sees itself, and the means of runs of tokens of the segments before it.

    segment  tokens of a segment, a multiple of 128
    run      tokens of a mean, which weighs as much as so many tokens; divides `segment`
    deviation  The paper computes means of a layer's inputs and sends them between machines. Here they are means of
               rotated keys and of values, and one machine computes all segments.
    source     Qazi et al. 2025, arXiv:2507.12145, segment means with a causal mask
    """

    ladder = ("segment-state:1024", "segment-state:2048", "segment-state:4096")

    segment: int = 1024
    run: int = 16

    def __post_init__(self) -> None:
        check_block("segment", self.segment)
        check_at_least("run", self.run, 1)
        if self.segment % self.run:
            raise InputError(f"run is {self.run}, expected a divisor of the segment of {self.segment} tokens")

    def mask(self, prompt: Prompt) -> Tensor:
        segment = torch.arange(prompt.num_blocks) * BLOCK // self.segment  # [N]
        return (segment[:, None] == segment)[None]

    def summaries(self, prompt: Prompt) -> Summaries | None:
        whole = (prompt.num_tokens - 1) // self.segment * self.segment  # tokens of all segments but the last
        if not whole:
            return None
        keys, values = (x[:, :whole].unflatten(1, (-1, self.run)).mean(2) for x in (prompt.keys, prompt.values))
        return Summaries(keys, values, self.run, self.segment)
