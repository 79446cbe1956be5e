"""Which expert a tile of tokens belongs to, and which (token, place) pairs are in it; nothing waits for the GPU."""

import torch
from torch import Tensor


def max_tiles(num_pairs: int, num_experts: int, block_m: int) -> int:
    """Tiles that any choice of experts fits: each expert that is chosen at all may leave one tile part empty."""
    return num_pairs // block_m + min(num_experts, num_pairs)


def tiles_by_expert(chosen: Tensor, num_experts: int, block_m: int) -> tuple[Tensor, Tensor]:
    """(pairs [T * block_m] int32, experts [T] int32), T = max_tiles.

    chosen   [M, top] integer in [0, num_experts)
    returns  pairs: m * top + j of each row of each tile, sorted by expert, or M * top where a row is empty;
             experts: of each tile, or num_experts where a tile is empty
    """
    flat = chosen.reshape(-1).long()
    num_pairs, device = flat.numel(), chosen.device
    num_tiles = max_tiles(num_pairs, num_experts, block_m)
    counts = torch.zeros(num_experts, dtype=torch.long, device=device).index_add_(0, flat, torch.ones_like(flat))
    tiles_of = (counts + block_m - 1) // block_m
    ends = tiles_of.cumsum(0)  # [E]: tiles up to each expert's last
    sorted_experts, order = flat.sort(stable=True)
    rank = torch.arange(num_pairs, device=device) - (counts.cumsum(0) - counts)[sorted_experts]  # within its expert
    row = (ends - tiles_of)[sorted_experts] * block_m + rank
    pairs = torch.full((num_tiles * block_m,), num_pairs, dtype=torch.int32, device=device)
    pairs[row] = order.int()
    experts = torch.searchsorted(ends, torch.arange(num_tiles, device=device), right=True)
    return pairs, experts.int()
