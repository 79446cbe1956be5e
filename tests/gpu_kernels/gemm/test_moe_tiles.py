import pytest
import torch

from gpu_kernels.gemm.moe_tiles import max_tiles, tiles_by_expert


@pytest.mark.parametrize("M, top, E, block_m", [(1, 1, 1, 16), (1, 2, 8, 16), (33, 2, 5, 16), (64, 1, 3, 16)])
def test_every_pair_is_in_one_row_of_its_expert(M, top, E, block_m):
    generator = torch.Generator().manual_seed(M)
    chosen = torch.rand(M, E, generator=generator).argsort(dim=1)[:, :top]
    pairs, experts = tiles_by_expert(chosen, E, block_m)
    assert pairs.numel() == len(experts) * block_m == max_tiles(M * top, E, block_m) * block_m
    of_row = experts.repeat_interleave(block_m)
    is_full = pairs < M * top
    assert sorted(pairs[is_full].tolist()) == list(range(M * top))
    assert torch.equal(of_row[is_full].long(), chosen.reshape(-1)[pairs[is_full].long()])
    assert (pairs[~is_full] == M * top).all()
    tiles = experts[experts < E].tolist()
    assert tiles == sorted(tiles) and set(tiles) == set(chosen.reshape(-1).tolist())


def test_written_by_hand():
    """Expert 1 has three pairs, two tiles of two rows; expert 2 one; expert 0 has no pair. Bound: 4 // 2 + 3 tiles."""
    pairs, experts = tiles_by_expert(torch.tensor([[1, 2], [1, 1]]), 3, 2)
    assert pairs.tolist() == [0, 2, 3, 4, 1, 4, 4, 4, 4, 4]
    assert experts.tolist() == [1, 1, 2, 3, 3]


def test_one_expert_with_all():
    pairs, experts = tiles_by_expert(torch.full((40, 1), 2), 4, 16)
    assert pairs[:40].tolist() == list(range(40)) and experts.tolist() == [2, 2, 2, 4, 4, 4]
