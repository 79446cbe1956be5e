"""Dense: every causal block."""

from dataclasses import dataclass

import torch
from torch import Tensor

from qbench.prefill.block_lists import causal_blocks
from qbench.prefill.pattern import PrefillPattern, Prompt, pattern


@pattern("dense")
@dataclass(frozen=True)
class Dense(PrefillPattern):
    """Every query sees all tokens before it. Prefills then run without block lists."""

    reads_keys = False

    def mask(self, prompt: Prompt) -> Tensor:
        return torch.ones_like(causal_blocks(prompt.num_tokens))[None]
