"""The routed experts of a lane under `ep=N`: all lanes route all tokens, or tokens travel to the experts' lanes."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from qbench.run.divisions import borders
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


class DispatchedExperts(LaneExperts):
    """Each lane routes its own tokens, and sends a token once to each lane that holds some of its experts.

    A lane adds the experts of a token in ascending order, and the token's lane adds the results in the order of the
    lanes. No lane has a capacity, so no token is dropped: lanes exchange the numbers of tokens first.

    source   Lepikhin et al. 2020, GShard, arXiv:2006.16668, section 3.2: dispatch and combine by all-to-all
    """

    def __init__(self, parts: ExpertParts, first: int, ranks: Ranks) -> None:
        super().__init__(parts, first, ranks)
        lanes = borders(self.config.num_experts, 1, ranks.layout.num_lanes)
        # [E]: the lane of each expert
        self._lane_of = torch.cat([torch.full((its.stop - its.start,), lane) for lane, its in enumerate(lanes)])

    def serve(self, hidden_size: int) -> None:
        """Compute tokens of other lanes in a forward pass that brings this one no tokens."""
        count = self.config.num_experts_per_token
        self._combine(torch.empty(0, hidden_size), torch.empty(0, count, dtype=torch.int64), torch.empty(0, count))

    def _one_by_one(self, rows: Tensor) -> Tensor:
        y = self._combine(rows, *self.choose(rows))
        if self._shared_net is not None:
            y += self._shared_net(rows)
        return y

    def _combine(self, rows: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """rows [M, K] of this lane, with their experts and weights [M, k] -> [M, K], the sums over all experts"""
        ranks, width = self.ranks, rows.shape[1]
        lanes = self._lane_of[chosen]  # [M, k]
        going = [(lanes == lane).any(1).nonzero()[:, 0] for lane in range(ranks.layout.num_lanes)]
        counts = [len(its) for its in going]
        coming = [int(n) for n in ranks.trade([torch.tensor([[float(n)]]) for n in counts], [1] * len(counts))]
        about = torch.cat([rows, weights, chosen.float()], dim=1)  # numbers of experts are exact in float32
        guests = torch.cat(ranks.trade([about[its] for its in going], coming))  # [n, K + 2k]
        x, weights, chosen = guests.split([width, weights.shape[1], chosen.shape[1]], dim=1)
        results = torch.zeros_like(x)
        self._add_own(results, x, self.by_expert(chosen.long(), weights))
        back = ranks.trade(results.split(coming), counts)
        y = torch.zeros_like(rows)
        for its, part in zip(going, back, strict=True):
            y.index_add_(0, its, part)
        self._count(counts, coming)
        return y

    def _count(self, going: Sequence[int], coming: Sequence[int]) -> None:
        traffic, lane = self.ranks.traffic, self.ranks.lane
        away = [n for other, n in enumerate(going) if other != lane]
        guests = [n for other, n in enumerate(coming) if other != lane]
        traffic.num_counts += 1
        traffic.num_away += sum(away)
        traffic.num_guests += sum(guests)
        traffic.num_bundles += sum(n > 0 for n in (*away, *guests))
