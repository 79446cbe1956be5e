"""Common code of the steps that rotate queries and keys: the rotation, its table, and a token's slot in a cache.

In a head's first R features, pair i is features (i, i + R / 2), or (2 i, 2 i + 1) if interleaved:

    first'  = first * cos[p, i] - second * sin[p, i]        p = the token's position; float32
    second' = second * cos[p, i] + first * sin[p, i]

Features past R stay as they are. A cache is [num_pages, page_size, ...]; slot s is token s % page_size of page
s // page_size, and slot -1 takes nothing: the padding of a batch.

source  Su et al. 2021, arXiv:2104.09864, eq. 34; halves as in GPT-NeoX, interleaved as in GPT-J
"""

from dataclasses import dataclass

import torch
from torch import Tensor

Index = tuple[Tensor, ...]

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
NO_SLOT = -1


def rotate_ref(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """[T, H, D] float64. x [T, H, D]; positions [T]; cos, sin [P, R / 2]"""
    half = cos.shape[1]
    pairs = torch.arange(2 * half, device=x.device)
    pairs = pairs.unflatten(0, (half, 2)).T if interleaved else pairs.unflatten(0, (2, half))
    c, s = cos.double()[positions][:, None], sin.double()[positions][:, None]  # [T, 1, R / 2]
    turned = x.double().clone()
    first, second = turned[..., pairs[0]], turned[..., pairs[1]]  # [T, H, R / 2]
    turned[..., pairs[0]], turned[..., pairs[1]] = first * c - second * s, second * c + first * s
    return turned


def rotation_error(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """[T, H, D] float64: how far from `rotate_ref` a rotation in float32 may be, before its result is rounded.

    Two products and their sum, each rounded to 2**-24 of its size: 3 * 2**-24 of the sum of the products' sizes at
    most. That sum is at most the pair's two sizes together, as cos and sin are at most 1.
    """
    half = cos.shape[1]
    sizes = x.double().abs()
    turned, rest = sizes[..., : 2 * half], sizes[..., 2 * half :]
    pairs = turned.unflatten(-1, (half, 2) if interleaved else (2, half))
    both = pairs.sum(-1 if interleaved else -2, keepdim=True).expand_as(pairs).flatten(-2)
    return 3 * 2**-24 * torch.cat([both, 0 * rest], dim=-1)


def cache_rows(cache: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
    """(page, place in it) [S] of the slots that take a token; `slots >= 0` says which."""
    taken = slots[slots >= 0].long()
    return taken // cache.shape[1], taken % cache.shape[1]


@dataclass(frozen=True, slots=True)
class Written:
    """Indices of the numbers that a cache takes.

    rows    of the new [T, G, ...]
    places  in the cache [num_pages, page_size, G, ...]
    """

    rows: Index
    places: Index


def written_rows(cache: Tensor, slots: Tensor) -> Written:
    """slots [T], or [T, G] if each head has its own"""
    if slots.dim() == 1:
        return Written((slots >= 0,), cache_rows(cache, slots))
    token, head = (slots >= 0).nonzero(as_tuple=True)
    taken = slots[token, head].long()
    return Written((token, head), (taken // cache.shape[1], taken % cache.shape[1], head))


def check_rotation(
    op: str,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    slots: Tensor,
    num_tokens: int,
    num_heads: int | None = None,
) -> None:
    """num_heads: slots may be [T, num_heads], too"""
    for name, tensor, dtypes in (
        ("positions", positions, (torch.int32, torch.int64)),
        ("slots", slots, (torch.int32, torch.int64)),
        ("cos", cos, (torch.float32,)),
        ("sin", sin, (torch.float32,)),
    ):
        if tensor.dtype not in dtypes:
            raise TypeError(f"{op}: got {name} {tensor.dtype}, expected {' or '.join(map(str, dtypes))}")
    for name, tensor in (("positions", positions), ("slots", slots)):
        of_heads = name == "slots" and num_heads is not None and list(tensor.shape) == [num_tokens, num_heads]
        if list(tensor.shape) != [num_tokens] and not of_heads:
            raise ValueError(f"{op}: got {name} {list(tensor.shape)}, expected [{num_tokens}]")
    if cos.dim() != 2 or cos.shape != sin.shape or not cos.is_contiguous() or not sin.is_contiguous():
        raise ValueError(f"{op}: got cos {list(cos.shape)} and sin {list(sin.shape)}, expected [P, R / 2] alike, dense")


def check_heads(op: str, name: str, tensor: Tensor, num_tokens: int, device: torch.device) -> None:
    if tensor.dtype not in DTYPES:
        raise TypeError(f"{op}: got {name} {tensor.dtype}, expected {' or '.join(map(str, DTYPES))}")
    if tensor.dim() != 3 or tensor.shape[0] != num_tokens:
        raise ValueError(f"{op}: got {name} {list(tensor.shape)}, expected [{num_tokens}, heads, features]")
    if tensor.device != device:
        raise ValueError(f"{op}: got {name} on {tensor.device}, expected {device} as the others")
