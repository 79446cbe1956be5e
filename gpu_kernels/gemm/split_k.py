"""How many programs share one tile of a product, and the place of their parts of its sum.

A product of few tokens has too few tiles to keep a GPU's memory busy, so each tile's input features are dealt to
several programs. Each leaves its partial sum in a workspace; the one that arrives last adds them in the order of the
features, so that the result does not depend on who arrived when.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

# Multiprocessors of the GPU that an architecture's tile shapes are made for: A100, H100 and H200 SXM, B200.
MULTIPROCESSORS = {80: 108, 90: 132, 100: 148}
# 8 programs on each of 148 multiprocessors, each with a tile of at most 256 channels by 16 tokens.
MAX_PROGRAMS = 8 * 148
MAX_TILE = 256 * 16


@dataclass(frozen=True, slots=True)
class Workspace:
    """One for each stream that runs products; kept between calls, since it has to start zeroed only once.

    partial  [any] float32   sums of single programs
    arrived  [any] int32     programs that have come to each tile; zeros between launches
    """

    partial: Tensor
    arrived: Tensor


def make_workspace(device: torch.device | str) -> Workspace:
    """Enough for every product (19 MB)."""
    partial = torch.empty(MAX_PROGRAMS * MAX_TILE, dtype=torch.float32, device=device)
    return Workspace(partial, torch.zeros(MAX_PROGRAMS, dtype=torch.int32, device=device))


class Tile(Protocol):
    """The part that the configurations of all products share."""

    @property
    def block_m(self) -> int: ...
    @property
    def block_n(self) -> int: ...
    @property
    def programs_per_sm(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Shares:
    """How the tiles of a product are dealt to programs.

    steps_per_split  steps over the input features that one program does at most
    partial, arrived parts of programs that share a tile; None if no tile is shared
    """

    num_tiles: int
    num_splits: int
    steps_per_split: int
    partial: Tensor | None
    arrived: Tensor | None

    @property
    def grid(self) -> tuple[int, int]:
        return self.num_tiles, self.num_splits


def share_tiles(
    workspace: Workspace | None, tile: Tile, arch: int, shape: tuple[int, int], num_steps: int, like: Tensor
) -> Shares:
    """One program or several for each tile of y.

    shape      [M, N] of y
    num_steps  over all input features
    like       an operand, on whose device a workspace is allocated if the caller gives no workspace
    """
    num_tiles = -(-shape[0] // tile.block_m) * -(-shape[1] // tile.block_n)
    splits = num_splits(arch, tile.programs_per_sm, num_tiles, num_steps)
    places = workspace_for(workspace, splits, num_tiles, tile.block_m * tile.block_n, like)
    return Shares(num_tiles, splits, -(-num_steps // splits), *places)


def num_splits(arch: int, programs_per_sm: int, num_tiles: int, num_blocks: int) -> int:
    """Programs a tile, so that about programs_per_sm of them come to each multiprocessor.

        wanted = programs_per_sm * multiprocessors // num_tiles, at least 1, at most num_blocks
        splits = ceil(num_blocks / ceil(num_blocks / wanted))      as many as shares of ceil(...) blocks leave busy

    On 132 multiprocessors, 2 programs each: 32 tiles of 16 blocks want 8 programs per tile, of 2 blocks each; 128 tiles
    want 2; from 133 tiles on no tile is split, for every multiprocessor has one.

    programs_per_sm  0: never split
    num_blocks       steps over the input features, of which each program does at least one
    """
    wanted = max(1, min(programs_per_sm * MULTIPROCESSORS[arch] // num_tiles, num_blocks))
    return -(-num_blocks // -(-num_blocks // wanted)) if num_blocks else 1


def workspace_for(
    workspace: Workspace | None, splits: int, num_tiles: int, tile_size: int, like: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """(partial, arrived): the caller's, or fresh ones of just that size; None if nothing is split.

    raises  ValueError if the caller's are too small or on another device
    """
    if splits == 1:
        return None, None
    num_floats = splits * num_tiles * tile_size
    if workspace is None:
        partial = torch.empty(num_floats, dtype=torch.float32, device=like.device)
        return partial, torch.zeros(num_tiles, dtype=torch.int32, device=like.device)
    if workspace.partial.numel() < num_floats or workspace.arrived.numel() < num_tiles:
        got = f"a workspace of {workspace.partial.numel()} sums and {workspace.arrived.numel()} tiles"
        raise ValueError(f"got {got}, expected {num_floats} and {num_tiles}; make_workspace() has enough")
    if workspace.partial.device != like.device:
        raise ValueError(f"got a workspace on {workspace.partial.device} and x on {like.device}, expected one device")
    return workspace.partial, workspace.arrived
