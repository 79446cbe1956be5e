"""T5's relative positions: the bias of a score depends on the distance of the key from the query, by head."""

import math

import torch
from torch import Tensor


def bucket(distance: Tensor, num_buckets: int, max_distance: int) -> Tensor:
    """Buckets of distances in tokens: each of the nearest has a bucket of its own, and ever more of the farther ones
    share one.

    The first half of the buckets are the distances 0, 1, 2 ..; the others grow by a constant factor up to
    max_distance, and the last holds all beyond.
    distance  int64 >= 0 of any shape
    returns   int64 in [0, num_buckets)
    """
    exact = num_buckets // 2
    # In float32, as the models were trained: which side of a bucket's edge a distance falls on is rounding.
    share = torch.log(distance.clamp_min(1).float() / exact) / math.log(max_distance / exact)  # 1 at max_distance
    far = (exact + (share * (num_buckets - exact)).long()).clamp_max(num_buckets - 1)
    return torch.where(distance < exact, distance, far)


class RelativeBias:
    """A stack's table of biases, shared by its layers.

    table          [buckets, H] float32
    is_two_way     of an encoder: half of the buckets are for keys after the query; else those are hidden from it
    call           the scores' bias [1, H, T, S] of T queries, the last of S tokens; -inf where a key is hidden
    source         Raffel et al. 2019, arXiv:1910.10683, section 2.1
    """

    def __init__(self, table: Tensor, max_distance: int, *, is_two_way: bool) -> None:
        self.table = table
        self.max_distance = max_distance
        self.is_two_way = is_two_way

    def __call__(self, num_queries: int, num_keys: int) -> Tensor:
        queries = torch.arange(num_keys - num_queries, num_keys)[:, None]
        ahead = torch.arange(num_keys) - queries  # [T, S]: by how much the key comes after the query
        num_buckets = self.table.shape[0]
        if self.is_two_way:
            half = num_buckets // 2
            places = bucket(ahead.abs(), half, self.max_distance) + half * (ahead > 0)
            return self.table[places].permute(2, 0, 1)[None]
        bias = self.table[bucket((-ahead).clamp_min(0), num_buckets, self.max_distance)]  # [T, S, H]
        return bias.masked_fill((ahead > 0)[..., None], -torch.inf).permute(2, 0, 1)[None]
