"""A first heat on part of the windows: points that are surely farther from the model than another one are left out.

The race errs if the best point loses to another one in the heat. There are n - 1 others, so each comparison may err
with probability ALPHA / (n - 1), and the whole race errs with probability ALPHA at most (union bound).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from qbench.measure.quality_figures import Blocks
from qbench.statistics.estimate import ALPHA
from qbench.statistics.intervals import MIN_BLOCKS
from qbench.statistics.paired import kld_log_ratio
from quant.present import present

SHARES = (4, 2)  # of the windows that a heat sees: the smallest part with enough windows for an interval


@dataclass(frozen=True, slots=True)
class Heat:
    """share: all windows over those of the heat, which are every share-th of all. points: those that take part"""

    share: int
    points: int

    def is_beaten(self, blocks: Blocks, by: Blocks, gain: float = 0.0) -> bool:
        """Whether the point is surely farther from the model, even if its divergence were less by `gain` of itself.

        blocks   of the point in the heat
        by       of the other point on all windows
        """
        places = range(0, len(by.tokens or ()), self.share)
        if by.kld is None or blocks.kld is None or len(places) != len(blocks.kld):
            return False
        other = Blocks(by.unit, [present(by.tokens)[i] for i in places], kld=[by.kld[i] for i in places])
        nearer = replace(blocks, kld=[(1 - gain) * value for value in blocks.kld], units=None)
        more = kld_log_ratio(other, nearer)
        is_farther = sum(present(nearer.kld)) > sum(present(other.kld)) and more.value > 0
        return is_farther and more.p_value is not None and more.p_value < ALPHA / max(1, self.points - 1)


def heat_windows(windows: int) -> int | None:
    """Windows of a heat before all `windows`; None: too few for one."""
    fitting: Sequence[int] = [
        windows // share for share in SHARES if windows % share == 0 and windows // share >= MIN_BLOCKS
    ]
    return fitting[0] if fitting else None
