"""The routed experts of a lane under --ep: all lanes route all tokens, and each computes those of its own experts."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from qbench.runtime.layers.feed_forward import FeedForward
from qbench.runtime.layers.moe import ExpertFeedForward, ExpertParts
from qbench.runtime.parallel.ranks import Ranks


class LaneExperts(ExpertFeedForward):
    """Experts add in ascending order within a lane; then the lanes add in their order, and the shared net comes last.

    No token is dropped, however many choose the experts of one lane.

    first    number of the first expert of this lane; `experts` are those that follow it
    shared   whole on every lane
    """

    def __init__(self, parts: ExpertParts, first: int, ranks: Ranks) -> None:
        super().__init__(parts)
        self.packed = None  # its sum goes past the other lanes
        self.first, self.ranks = first, ranks
        self._nets = [_as_one_call(net) for net in parts.experts]
        self._shared_net = None if parts.shared is None else _as_one_call(parts.shared)

    @property
    def step(self) -> None:
        """None: the sum over the lanes is between the experts and the shared net."""
        return None

    def _one_by_one(self, rows: Tensor) -> Tensor:
        y = torch.zeros_like(rows)
        self._add_own(y, rows, self.routes(rows))
        self.ranks.add(y.numpy())
        if self._shared_net is not None:
            y += self._shared_net(rows)
        return y

    def _add_own(self, y: Tensor, rows: Tensor, routes: Iterable[tuple[int, Tensor, Tensor]]) -> None:
        """Add the results of this lane's experts to y. routes: as `ExpertFeedForward.routes`"""
        own = range(self.first, self.first + len(self._nets))
        for expert, tokens, weights in routes:
            if expert in own:
                y.index_add_(0, tokens, self._nets[expert - self.first](rows[tokens]) * weights[:, None])
                self.ranks.traffic.num_pairs += len(tokens)


def _as_one_call(net: FeedForward) -> Callable[[Tensor], Tensor]:
    return net.step or net
