"""`PrefillTally`: how much of the attention matrix the prefills of a model computed."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(slots=True)
class PrefillTally:
    """Sums over the layers and prompts of prefills under a pattern.

    measures_mass  whether each prefill also computes dense attention, to compare with; that takes longer than dense
    blocks         sum of the shares of causal blocks that were computed
    mass           sum of the attention weights that dense attention gives to the computed tokens, mean over queries
    count          layers of prompts in the sum of blocks
    num_masses     layers of prompts in the sum of mass
    """

    measures_mass: bool = False
    blocks: float = 0.0
    mass: float = 0.0
    count: int = 0
    num_masses: int = 0

    def restart(self, *, measures_mass: bool) -> None:
        """Start to count again."""
        self.measures_mass = measures_mass
        self.blocks, self.mass, self.count, self.num_masses = 0.0, 0.0, 0, 0

    def add(self, blocks: float, lse: Tensor | None = None, dense_lse: Tensor | None = None) -> None:
        """Count one layer of a prompt.

        lse, dense_lse  [H, T]: of the computed tokens and of all tokens, if mass is measured
        """
        self.blocks += blocks
        self.count += 1
        if lse is not None and dense_lse is not None:
            self.mass += float((lse - dense_lse).exp().mean())
            self.num_masses += 1

    @property
    def mean_blocks(self) -> float | None:
        return self.blocks / self.count if self.count else None

    @property
    def mean_mass(self) -> float | None:
        return self.mass / self.num_masses if self.num_masses else None
