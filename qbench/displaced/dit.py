"""A diffusion transformer of our own, small enough to be trained in seconds.

A picture is cut into patches, which are tokens. A block is attention between all tokens, then a net per token; both are
scaled and shifted by an embedding of time and kind. The model predicts the velocity from noise to the picture.

source   Peebles and Xie 2022, DiT, arXiv:2212.09748; velocity: Liu et al. 2022, rectified flow, arXiv:2209.03003
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

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


PATCH, WIDTH, NUM_HEADS, NUM_BLOCKS = 2, 48, 4, 2
SIDE = SIZE // PATCH  # patches of a side
NUM_TOKENS = SIDE * SIDE
TRAIN_STEPS, TRAIN_BATCH, NUM_PICTURES = 400, 32, 2048

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


class Block(nn.Module):
    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.change = nn.Linear(WIDTH, 6 * WIDTH)  # scale, shift and gate of both halves
        nn.init.zeros_(self.change.weight)
        nn.init.zeros_(self.change.bias)

    def forward(self, x: Tensor, about: Tensor, attend: Attend) -> Tensor:
        """x [B, T, WIDTH] of some tokens, about [B, WIDTH]"""
        scale, shift, gate, net_scale, net_shift, net_gate = self.change(about)[:, None].chunk(6, -1)
        q, k, v = self.qkv(_normed(x) * (1 + scale) + shift).chunk(3, -1)
        x = x + gate * self.out(attend(self.layer, q, k, v))
        inner = functional.gelu(self.up(_normed(x) * (1 + net_scale) + net_shift))
        return x + net_gate * self.down(inner)


class Dit(nn.Module):
    """The velocity of some tokens; `attend` reaches the keys and values of the others."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(PATCH * PATCH, WIDTH), nn.Linear(WIDTH, PATCH * PATCH)
        self.places = nn.Parameter(0.02 * torch.randn(NUM_TOKENS, WIDTH))
        self.kinds = nn.Embedding(len(KINDS), WIDTH)
        self.time = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.blocks = nn.ModuleList(Block(layer) for layer in range(NUM_BLOCKS))

    def forward(self, x: Tensor, time: Tensor, kinds: Tensor, own: slice, attend: Attend) -> Tensor:
        """x [B, T, PATCH**2] of the tokens `own`; time [B] from 0, noise, to 1; kinds [B] -> as x"""
        about = self.time(_waves(time)) + self.kinds(kinds)
        hidden = self.enter(x) + self.places[own]
        for block in self.blocks:
            hidden = block(hidden, about, attend)
        return self.leave(_normed(hidden))


def attend_ref(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of [B, T, WIDTH] queries to [B, S, WIDTH] keys and values, in heads"""
    q, k, v = (x.unflatten(-1, (NUM_HEADS, -1)).transpose(1, 2) for x in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def patches(pictures: Tensor) -> Tensor:
    """[B, SIZE, SIZE] -> [B, NUM_TOKENS, PATCH**2], row by row"""
    return (
        pictures.unflatten(2, (SIDE, PATCH))
        .unflatten(1, (SIDE, PATCH))
        .transpose(2, 3)
        .reshape(-1, NUM_TOKENS, PATCH**2)
    )


def pictures(tokens: Tensor) -> Tensor:
    """The inverse of `patches`"""
    return tokens.view(-1, SIDE, SIDE, PATCH, PATCH).transpose(2, 3).reshape(-1, SIZE, SIZE)


def trained(steps: int = TRAIN_STEPS, seed: int = 0) -> Dit:
    """The same weights on each call on one machine."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Dit()
        x, kinds = shapes(NUM_PICTURES, seed)
        x = patches(x)
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
        for _ in range(steps):
            which = torch.randint(NUM_PICTURES, (TRAIN_BATCH,))
            noise, time = torch.randn(TRAIN_BATCH, NUM_TOKENS, PATCH**2), torch.rand(TRAIN_BATCH)
            mixed = torch.lerp(noise, x[which], time[:, None, None])
            found = model(mixed, time, kinds[which], slice(None), attend_ref)
            loss = functional.mse_loss(found, x[which] - noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval().requires_grad_(False)


def _normed(x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:])


def _waves(time: Tensor) -> Tensor:
    """[B] -> [B, WIDTH] sines and cosines"""
    angles = time[:, None] * torch.exp(torch.linspace(0, math.log(1000), WIDTH // 2))
    return torch.cat([angles.sin(), angles.cos()], -1)
