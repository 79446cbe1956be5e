"""How far logits are from those of the same model with textbook attention."""

import torch
from torch import Tensor

from qbench.attention_choice import TEXTBOOK, check_attention
from qbench.measure.quality_figures import AttentionDelta
from qbench.quality.kld.kld import divergence
from qbench.run_options import RunOptions
from quant.errors import InputError


class DeltaSums:
    """Statistics of the tokens that were added."""

    def __init__(self) -> None:
        self.max_logit = self.max_kld = self.sum_kld = 0.0
        self.same_top = self.num_tokens = 0

    def add(self, logits: Tensor, textbook: Tensor, targets: Tensor) -> None:
        """logits, textbook [N, V] float32, targets [N] int64; a logit that is not finite makes every statistic so"""
        compared = divergence(logits, textbook, targets)
        self.max_logit = float(torch.maximum(torch.tensor(self.max_logit), (logits - textbook).abs().max()))
        self.max_kld = float(max(self.max_kld, compared.kld.max()))
        self.sum_kld += float(compared.kld.sum())
        self.same_top += int(compared.same_top.sum()) if self.max_logit < torch.inf else 0
        self.num_tokens += len(targets)

    def statistics(self) -> AttentionDelta:
        return AttentionDelta(
            self.max_logit,
            self.sum_kld / self.num_tokens,
            self.max_kld,
            self.same_top / self.num_tokens,
            self.num_tokens,
        )


def has_textbook(options: RunOptions) -> bool:
    """Whether attention is chosen, other than textbook attention, and that could run in its place."""
    if options.attention in (None, TEXTBOOK):
        return False
    try:
        check_attention(TEXTBOOK, options.device, options.cache_spec)
    except InputError:  # of a policy that textbook attention has not
        return False
    return True
