"""Pictures of shapes: the data that the diffusion transformer learns."""

import torch
from torch import Tensor

SIZE = 16  # pixels of a side
KINDS = ("square", "disc", "cross")


def shapes(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """[count, SIZE, SIZE] float32 from -1 to 1, and the kind of each [count] int64; place and radius are random."""
    draw = torch.Generator().manual_seed(seed)
    kinds = torch.randint(len(KINDS), (count,), generator=draw)
    radius = 3 + 2 * torch.rand(count, 1, 1, generator=draw)
    centre = SIZE / 2 - 0.5 + 5 * (torch.rand(2, count, 1, 1, generator=draw) - 0.5)
    pixels = torch.arange(SIZE, dtype=torch.float32)
    dy, dx = (pixels[None, :, None] - centre[0]).abs(), (pixels[None, None, :] - centre[1]).abs()
    far = torch.stack(
        [
            torch.maximum(dy, dx) - radius,
            (dy**2 + dx**2).sqrt() - radius,
            torch.maximum(torch.minimum(dy, dx) - radius / 3, torch.maximum(dy, dx) - radius),
        ]
    )  # [3, count, SIZE, SIZE]: distance from the border of each kind
    mine = far.gather(0, kinds[None, :, None, None].expand(1, -1, SIZE, SIZE))[0]
    return 1 - 2 * (mine + 0.5).clamp(0, 1), kinds
