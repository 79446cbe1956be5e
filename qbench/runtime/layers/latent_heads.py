"""The up-projections of MLA: a matrix of keys and one of values per head."""

import torch
from torch import Tensor

from qbench.runtime.layers.fused import FusedLinears
from quant.formats import get_format
from quant.models import MlaConfig


class LatentHeads:
    """kv_b_proj, cut into heads, dequantized once.

    keys     [H, N, R] float32: the unrotated key of head h is keys[h] @ latent
    values   [H, V, R] float32: its value is values[h] @ latent
    source   DeepSeek-V2, arXiv:2405.04434, eq. 10 and 11
    """

    def __init__(self, kv_up: FusedLinears, sizes: MlaConfig, num_heads: int) -> None:
        weight = full_weight(kv_up).unflatten(0, (num_heads, -1))  # [H, N + V, R]
        keys, values = weight.split((sizes.qk_nope_head_dim, sizes.v_head_dim), 1)
        self.keys, self.values = keys.contiguous(), values.contiguous()

    @property
    def size_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def absorb(self, q: Tensor) -> Tensor:
        """The unrotated part of queries as it meets latents: [B, H, T, N] -> [B, H, T, R]"""
        return q @ self.keys

    def values_of(self, latents: Tensor) -> Tensor:
        """Weighted sums of latents as weighted sums of values: [B, H, T, R] -> [B, H, T, V]"""
        return latents @ self.values.transpose(1, 2)


class MaterialisedHeads:
    """The same matrices multiplied into the projections before and behind the attention.

    heads    their keys and values
    queries  [H (N + D_rope), K]: the projection that queries come from
    outputs  [M, H V]: the one that outputs go through

    .queries [H R, K], .rotated [H D_rope, K], .outputs [M, H R] float32
    """

    def __init__(self, heads: LatentHeads, queries: Tensor, outputs: Tensor) -> None:
        num_heads, kept_size, _ = heads.keys.shape
        kept, rotated = queries.unflatten(0, (num_heads, -1)).tensor_split([kept_size], 1)
        self.queries = (heads.keys.transpose(1, 2) @ kept).flatten(0, 1)
        self.rotated = rotated.flatten(0, 1).contiguous()
        by_head = outputs.unflatten(1, (num_heads, -1)).transpose(0, 1)  # [H, M, V]
        self.outputs = (by_head @ heads.values).transpose(0, 1).flatten(1)


FLOATS = ("f32", "f16", "bf16")
F16_MAX = 65504.0
PANEL = 64  # cpu_kernels keep so many output channels side by side
GROUP_INPUTS = 128  # of int8, that share a scale
# Codes of fewer bits are rounded to int8. For normal weights that adds 0.6 % of their deviation to an error of 3.5 %
# (Q5_0) and more, squares adding up: 2 % more of it at most.
MOST_BITS = 6.0


def heads_format(stored: str, beside: str, impl: str) -> str:
    """Format of the heads' matrices in cpu_kernels: as they are stored if those are floats, else int8 or float16.

    Codes of integers times their scales fit in no format of as few bits once they are turned around, and rounding to
    float16's 11 bits adds a hundredth of the earlier rounding error: codes of 8 bits, and all of impl "exact". Files
    that split the up-projection give it in float32 although their weights are codes, as `beside` shows: the format of
    another projection.
    """
    coded = beside if stored == "f32" else stored
    if coded in FLOATS:
        return stored if stored == coded else "f16"
    return "int8" if impl == "auto" and get_format(coded).bits_per_weight < MOST_BITS else "f16"


def packed_heads_bytes(sizes: MlaConfig, num_heads: int, name: str | None) -> int:
    """Memory of one layer's matrices in a format of cpu_kernels; None: in torch"""
    if name is None:
        return num_heads * (sizes.qk_nope_head_dim + sizes.v_head_dim) * sizes.kv_lora_rank * 4
    keys = _panel_bytes(sizes.qk_nope_head_dim, name) * -(-sizes.kv_lora_rank // PANEL)
    values = _panel_bytes(sizes.kv_lora_rank, name) * -(-sizes.v_head_dim // PANEL)
    return num_heads * (keys + values)


def _panel_bytes(inputs: int, name: str) -> int:
    if name == "int8":
        return PANEL * (inputs + -(-inputs // GROUP_INPUTS) * 4)
    return PANEL * inputs * (4 if name == "f32" else 2)


def full_weight(linears: FusedLinears, index: int = 0) -> Tensor:
    """The weight number `index` of these linears: [N, K] float32"""
    weights = [
        rows
        for linear, counts in linears.linears
        for rows in linear.rows(torch.arange(sum(counts)).numpy()).split(counts)
    ]
    return weights[index]
