"""GGUF weights as the kernels read them: a file's blocks, taken apart once into arrays with aligned rows.

A block's bytes start at multiples of 34, 144 or 210 bytes, which no 16-byte load can take; here the same bits are as
words_layout draws them, and every kind of scale in an array of its own, rows side by side: [groups, N].

    q8_0   codes of 8 bits in words, d as the scale of each group of 32: a WordsWeight          8.5 bits per weight
    q4_k   codes [K / 128, N, 32] int16: 4 bits, planes of 32 features;                         4.625 (file: 4.5)
           scales, minima [K / 32, N] uint8; d, dmin [K / 256, N] float16
    q6_k   codes [K / 64, N, 16] int16: low 4 bits, planes of 16 features;                      6.5625
           high [K / 64, N, 16] uint8: high 2 bits; scales [K / 16, N] int8; d [K / 256, N] float16

    bit 15     12 11      8 7       4 3       0        bit 7   6 5     4 3     2 1     0
       +---------+---------+---------+---------+          +-------+-------+-------+-------+
       | 48 + i  | 32 + i  | 16 + i  |    i    | codes    | 48+i  | 32+i  | 16+i  |   i   | high       (q6_k)
       +---------+---------+---------+---------+          +-------+-------+-------+-------+

source  ggml's block structures of these types; this project's formats draw the bytes
"""

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from gpu_kernels.gemm.words_layout import WordsWeight, pack_words

SUPER_BLOCK = 256
BLOCK_BYTES = {"q8_0": 34, "q4_k": 144, "q6_k": 210}
BLOCK_SIZE = {"q8_0": 32, "q4_k": SUPER_BLOCK, "q6_k": SUPER_BLOCK}


@dataclass(frozen=True, slots=True)
class KQuantWeight:
    """q4_k: weight = d * scales * q - dmin * minima, q in 0..15. q6_k: weight = d * scales * (q - 32), q in 0..63.

    high is q6_k's, minima and dmin are q4_k's; None in the other.
    """

    codes: Tensor
    high: Tensor | None
    scales: Tensor
    minima: Tensor | None
    d: Tensor
    dmin: Tensor | None

    @property
    def num_rows(self) -> int:
        return self.codes.shape[1]

    @property
    def plane_k(self) -> int:
        """Input features of a plane, which are those of a group."""
        return self.codes.shape[2]

    @property
    def num_features(self) -> int:
        return 4 * self.plane_k * self.codes.shape[0]


def pack_gguf(data: Tensor, type_name: str) -> WordsWeight | KQuantWeight:
    """A tensor's bytes as a GGUF file holds them, in the kernels' layout.

    data       [N, bytes per row] uint8
    type_name  "q8_0", "q4_k" or "q6_k"
    raises     NotImplementedError for other types, TypeError (dtype), ValueError (a row is no whole blocks)
    """
    if type_name not in BLOCK_BYTES:
        raise NotImplementedError(f"pack_gguf: got {type_name!r}, expected one of {list(BLOCK_BYTES)}")
    if data.dtype != torch.uint8:
        raise TypeError(f"pack_gguf: got data {data.dtype}, expected torch.uint8")
    block_bytes = BLOCK_BYTES[type_name]
    if data.dim() != 2 or data.shape[1] == 0 or data.shape[1] % block_bytes:
        got = f"data {list(data.shape)}"
        raise ValueError(f"pack_gguf: got {got}, expected [N, a multiple of {type_name}'s {block_bytes} bytes]")
    blocks = data.reshape(len(data), -1, block_bytes)  # [N, B, block_bytes]
    return {"q8_0": _pack_q8_0, "q4_k": _pack_q4_k, "q6_k": _pack_q6_k}[type_name](blocks)


def dequantize_k_ref(weight: KQuantWeight) -> Tensor:
    """weight [N, K] float64"""
    K = weight.num_features
    q = _planes(weight.codes, 4)  # [N, K]
    if weight.high is not None:
        q = (q | _planes(weight.high.to(torch.int16), 2) << 4) - 32
    feature = torch.arange(K, device=q.device)
    group, super_block = feature // weight.plane_k, feature // SUPER_BLOCK
    real = weight.d.double()[super_block] * weight.scales.double()[group] * q.T  # [K, N]
    if weight.minima is not None and weight.dmin is not None:
        real = real - weight.dmin.double()[super_block] * weight.minima.double()[group]
    return real.T


def _planes(words: Tensor, bits: int) -> Tensor:
    """[blocks, N, words] int16 -> the codes [N, K] int16 of all four planes"""
    by_plane = torch.stack([words >> bits * p & (1 << bits) - 1 for p in range(4)], dim=2)  # [blocks, N, 4, words]
    return by_plane.transpose(0, 1).reshape(words.shape[1], -1)


def _by_group(values: Tensor) -> Tensor:
    """[N, blocks, groups of a block] -> [groups, N]"""
    return values.reshape(len(values), -1).T.contiguous()


def _half(data: Tensor) -> Tensor:
    """[N, B, 2] uint8 -> [N, B, 1] float16"""
    return data.contiguous().view(torch.float16)


def _words(q: Tensor, plane_k: int, bits: int, dtype: torch.dtype) -> Tensor:
    """q [N, K] int32 -> [K / (4 * plane_k), N, plane_k]"""
    by_plane = q.reshape(len(q), -1, 4, plane_k)  # [N, blocks, 4, plane_k]
    words = reduce(torch.bitwise_or, (by_plane[:, :, p] << bits * p for p in range(4)))
    return words.to(dtype).transpose(0, 1).contiguous()


def _pack_q8_0(blocks: Tensor) -> WordsWeight:
    q = blocks[:, :, 2:].reshape(len(blocks), -1).view(torch.int8)
    scale = _half(blocks[:, :, :2])[:, :, 0]  # [N, B]
    return pack_words(q, scale, bits=8)


def _pack_q4_k(blocks: Tensor) -> KQuantWeight:
    first, second, third = blocks[:, :, 4:8], blocks[:, :, 8:12], blocks[:, :, 12:16]  # [N, B, 4] each
    scales = torch.cat([first & 63, third & 15 | first >> 6 << 4], dim=2)  # [N, B, 8]
    minima = torch.cat([second & 63, third >> 4 | second >> 6 << 4], dim=2)
    qs = blocks[:, :, 16:].reshape(*blocks.shape[:2], 4, 1, 32).int()
    q = torch.cat([qs & 15, qs >> 4], dim=3)  # [N, B, 4, 2, 32]: features in their order
    return KQuantWeight(
        codes=_words(q.reshape(len(blocks), -1), 32, 4, torch.int16),
        high=None,
        scales=_by_group(scales),
        minima=_by_group(minima),
        d=_by_group(_half(blocks[:, :, 0:2])),
        dmin=_by_group(_half(blocks[:, :, 2:4])),
    )


def _pack_q6_k(blocks: Tensor) -> KQuantWeight:
    shape = blocks.shape[:2]
    ql = blocks[:, :, :128].reshape(*shape, 2, 2, 32).int()
    qh = blocks[:, :, 128:192].reshape(*shape, 2, 1, 32).int()
    low = torch.cat([ql & 15, ql >> 4], dim=3).reshape(len(blocks), -1)  # [N, K]
    high = torch.cat([qh >> 2 * run & 3 for run in range(4)], dim=3).reshape(len(blocks), -1)
    return KQuantWeight(
        codes=_words(low, 16, 4, torch.int16),
        high=_words(high, 16, 2, torch.uint8),
        scales=_by_group(blocks[:, :, 192:208].contiguous().view(torch.int8)),
        minima=None,
        d=_by_group(_half(blocks[:, :, 208:210])),
        dmin=None,
    )
