"""PyramidKV: SnapKV with more tokens in lower layers."""

from dataclasses import dataclass

from qbench.policies.policy import check_at_least
from qbench.policies.registry import policy
from qbench.policies.snapkv import SnapKV


@policy("pyramidkv")
@dataclass(frozen=True, kw_only=True)
class PyramidKV(SnapKV):
    """Budgets fall linearly from the first to the last layer; their mean is the budget.

    beta     steepness: without its window the last layer keeps 1 / beta of the mean, if the context is long enough

    deviation  If the pyramid does not fit (first layer above the context, or last one below the window), all layers
               have the same budget, as in the authors' code.
    source     Cai et al. 2024, arXiv:2406.02069, section 3.2
    """

    beta: int = 20

    def __post_init__(self) -> None:
        check_at_least("beta", self.beta, 1)
        super().__post_init__()

    def slots(self, context: int, layer: int, num_layers: int) -> int:
        mean = super().slots(context, layer, num_layers)
        least, most = mean / self.beta, mean * (2 - 1 / self.beta)
        if most >= context - self.window:
            most = context - self.window
            least = 2 * mean - most
        if num_layers == 1 or not context >= most >= least >= self.window:
            return mean
        return min(context, round(most - layer * (most - least) / (num_layers - 1)))
