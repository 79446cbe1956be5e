"""How far logits are from those of the same model with textbook attention."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from qbench.measure.quality_figures import AttentionDelta
from qbench.quality.kld.kld import Divergence, concatenate, divergence
from qbench.run.cache_spec import check_cache
from qbench.run.choices import TEXTBOOK
from qbench.run.options import RunOptions
from quant.errors import InputError

Difference = tuple[Divergence, float]  # token by token, and the largest of a logit


def difference(logits: Tensor, textbook: Tensor, targets: Tensor) -> Difference:
    """logits, textbook [N, V] float32, targets [N] int64"""
    return divergence(logits, textbook, targets), float((logits - textbook).abs().max())


class DeltaSums:
    """Statistics of the tokens that were added."""

    def __init__(self) -> None:
        self.max_logit = self.max_kld = self.sum_kld = 0.0
        self.same_top = self.num_tokens = 0

    def add(self, logits: Tensor, textbook: Tensor, targets: Tensor) -> None:
        """logits, textbook [N, V] float32, targets [N] int64; a logit that is not finite makes every statistic so"""
        self.add_parts([difference(logits, textbook, targets)])

    def add_parts(self, parts: Sequence[Difference]) -> None:
        """The same of rows in parts, each by `difference`."""
        compared = concatenate([part for part, _ in parts])
        self.max_logit = float(np.max([self.max_logit, *(most for _, most in parts)]))  # which keeps a NaN
        self.max_kld = float(max(self.max_kld, compared.kld.max()))
        self.sum_kld += float(compared.kld.sum())
        self.same_top += int(compared.same_top.sum()) if self.max_logit < np.inf else 0
        self.num_tokens += len(compared.kld)

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
        check_cache(options.cache_spec, options.device, TEXTBOOK)
    except InputError:  # of a policy that textbook attention has not
        return False
    return True
