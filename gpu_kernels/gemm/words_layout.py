"""Weights of 4 and 8 bits as the kernels read them: in words of 16 bits.

K is cut into blocks of 128 input features of 4 bits, or 64 of 8. A row has 32 words in each block, and the rows of a
block follow each other, so that a tile of rows is one run of memory: codes [blocks, N, 32] int16. A code is kept as q +
8 or q + 128. Word i holds those of features of the block that are 32 apart:

    bit 15     12 11      8 7       4 3       0           bit 15           8 7             0
       +---------+---------+---------+---------+             +---------------+---------------+
       | 96 + i  | 64 + i  | 32 + i  |    i    |             |    32 + i     |       i       |
       +---------+---------+---------+---------+             +---------------+---------------+

So a plane, the same bits of all 32 words, is 32 features in a row, which a tensor core takes as they come; and two
neighbouring words are in one 32-bit register, so that one AND-OR makes two floats of one plane's codes:
0x6400 | q is 1024 + q as float16, 0x4300 | q is 128 + q as bfloat16 (of 4 bits).
"""

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

PLANE_K = 32  # two steps of a tensor core's 16, and the smallest group
BITS = (4, 8)
GROUP_SIZES = (32, 64, 128)
SCALE_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True, slots=True)
class WordsWeight:
    """weight[n, k] = scale[g, n] * (q[n, k] - zero_point[g, n]), q and zero_point in [-8, 7] or [-128, 127].

    codes       [blocks, N, 32] int16   as drawn above; features past K are code 0
    scale       [G, N] float   G = K / group_size, or 1 per channel
    zero_point  [G, N] int8    None: 0
    order       [K] int32      place p of the codes holds input feature order[p]; None: p
    num_features  K
    group_size    32, 64, of 4 bits 128 too, or None per channel
    bits          4 or 8
    """

    codes: Tensor
    scale: Tensor
    zero_point: Tensor | None
    order: Tensor | None
    num_features: int
    group_size: int | None
    bits: int

    @property
    def num_rows(self) -> int:
        return self.codes.shape[1]

    @property
    def num_groups(self) -> int:
        return 1 if self.group_size is None else self.num_features // self.group_size


def planes(bits: int) -> int:
    """Number of codes in one word."""
    return 16 // bits


def block_k(bits: int) -> int:
    """Input features of a block."""
    return planes(bits) * PLANE_K


def pack_words(
    q: Tensor, scale: Tensor, zero_point: Tensor | None = None, g_idx: Tensor | None = None, *, bits: int = 4
) -> WordsWeight:
    """The codes of GPTQ, AWQ or plain rounding in the kernels' layout.

    q           [N, K] int8 in [-8, 7] or [-128, 127]
    scale       [N, G] float, finite; G = 1 is per channel, otherwise K = G * group_size
    zero_point  [N, G] int8, as q
    g_idx       [K] int32: the group of each input feature, if it is not k // group_size (act-order)
    raises      TypeError, ValueError; NotImplementedError for bits and group sizes that are not in the lists above
    """
    _check(q, scale, zero_point, bits)
    K, num_groups = q.shape[1], scale.shape[1]
    group_size = None if num_groups == 1 else K // num_groups
    if group_size is not None and (group_size not in GROUP_SIZES or group_size * num_groups != K):
        got = f"{num_groups} groups of {K} features"
        raise NotImplementedError(f"pack_words: got {got}, expected groups of {GROUP_SIZES}, or one a channel")
    order = None if g_idx is None or group_size is None else _order(g_idx, group_size, K)
    if group_size is not None and group_size > block_k(bits):  # two groups of 64 with one scale
        repeats, group_size = group_size // block_k(bits), block_k(bits)
        scale = scale.repeat_interleave(repeats, dim=1)
        zero_point = None if zero_point is None else zero_point.repeat_interleave(repeats, dim=1)
    if order is not None:
        q = q[:, order.long()]
    return WordsWeight(
        codes=pack_codes(q, bits),
        scale=scale.T.contiguous(),
        zero_point=None if zero_point is None else zero_point.T.contiguous(),
        order=order,
        num_features=K,
        group_size=group_size,
        bits=bits,
    )


def pack_codes(q: Tensor, bits: int) -> Tensor:
    """q [N, K] int8 -> [blocks, N, 32] int16"""
    N, K = q.shape
    offset = 1 << bits - 1
    unsigned = torch.nn.functional.pad(q.to(torch.int32) + offset, (0, -K % block_k(bits)), value=offset)
    by_plane = unsigned.reshape(N, -1, planes(bits), PLANE_K)  # [N, blocks, planes, 32]
    words = reduce(torch.bitwise_or, (by_plane[:, :, p] << bits * p for p in range(planes(bits))))  # [N, blocks, 32]
    return words.to(torch.int16).transpose(0, 1).contiguous()  # past 2**15 wraps round


def unpack_codes(codes: Tensor, num_features: int, bits: int) -> Tensor:
    """[blocks, N, 32] int16 -> q [N, K] int8"""
    mask, offset = (1 << bits) - 1, 1 << bits - 1
    by_plane = torch.stack([(codes >> bits * p) & mask for p in range(planes(bits))], dim=2)  # [blocks, N, planes, 32]
    q = by_plane.transpose(0, 1).reshape(codes.shape[1], -1) - offset
    return q[:, :num_features].to(torch.int8)


def unpack_words_ref(weight: WordsWeight) -> Tensor:
    """weight [N, K] float64, its features in their own order"""
    K = weight.num_features
    q = unpack_codes(weight.codes, K, weight.bits).double()
    group_of = torch.arange(K, device=q.device) // (weight.group_size or max(K, 1))
    if weight.zero_point is not None:
        q = q - weight.zero_point.double()[group_of].T
    placed = weight.scale.double()[group_of].T * q  # [N, K]
    if weight.order is None:
        return placed
    return torch.empty_like(placed).index_copy_(1, weight.order.long(), placed)


def _check(q: Tensor, scale: Tensor, zero_point: Tensor | None, bits: int) -> None:
    if bits not in BITS:
        raise NotImplementedError(f"pack_words: got {bits} bits, expected one of {BITS}")
    if q.dtype != torch.int8 or (zero_point is not None and zero_point.dtype != torch.int8):
        got = f"q {q.dtype} and zero_point {None if zero_point is None else zero_point.dtype}"
        raise TypeError(f"pack_words: got {got}, expected torch.int8")
    if scale.dtype not in SCALE_DTYPES:
        raise TypeError(f"pack_words: got scale {scale.dtype}, expected one of {SCALE_DTYPES}")
    if q.dim() != 2 or scale.dim() != 2 or scale.shape[0] != q.shape[0] or scale.shape[1] == 0:
        raise ValueError(f"pack_words: got q {list(q.shape)} and scale {list(scale.shape)}, expected [N, K] and [N, G]")
    if zero_point is not None and zero_point.shape != scale.shape:
        got = f"zero_point {list(zero_point.shape)} and scale {list(scale.shape)}"
        raise ValueError(f"pack_words: got {got}, expected one shape")
    qmin, qmax = -(1 << bits - 1), (1 << bits - 1) - 1
    for name, codes in (("q", q), ("zero_point", zero_point)):
        if codes is not None and ((codes < qmin) | (codes > qmax)).any():
            raise ValueError(f"pack_words: got {name} in [{codes.min()}, {codes.max()}], expected [{qmin}, {qmax}]")


def _order(g_idx: Tensor, group_size: int, K: int) -> Tensor:
    """The features sorted by group, those of one group in their own order."""
    if list(g_idx.shape) != [K]:
        raise ValueError(f"pack_words: got g_idx {list(g_idx.shape)}, expected [{K}]")
    sorted_groups, order = g_idx.sort(stable=True)
    if not torch.equal(sorted_groups.long(), torch.arange(K, device=g_idx.device) // group_size):
        raise ValueError(f"pack_words: expected {group_size} features in every group of g_idx, got another number")
    return order.to(torch.int32)
