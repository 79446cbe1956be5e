"""Keys and values of a whole model in pages, and attention over them, as a decoder's layers call it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.attention.paged import PagedCache
from gpu_kernels.attention.paged_decode import Operands as PagedDecode
from gpu_kernels.attention.paged_decode import paged_decode
from gpu_kernels.attention.paged_prefill import Operands as PagedPrefill
from gpu_kernels.attention.paged_prefill import paged_prefill
from gpu_kernels.fused.rope_cache import Operands as RopeCache
from gpu_kernels.fused.rope_cache import rope_cache
from gpu_kernels.graphs import Input

# (layer, query [T, H, D], key [T, G, D], value [T, G, D]), all unrotated -> [T, H, D]
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Pages:
    """keys, values            [num_pages, page_size, G, D] of a layer
    key_scale, value_scale     a layer's [G] or [1] float32, or [num_pages, page_size, G], of FP8; of int8 [num_pages,
                               page_size, G, 2] float16, scales and minima; None: they are in 16 bits
    """

    keys: list[Tensor]
    values: list[Tensor]
    key_scale: list[Tensor] | None = None
    value_scale: list[Tensor] | None = None

    @property
    def in_pages(self) -> list[list[Tensor]]:
        """Keys, values, and scales if each token has its own: the tensors of each layer whose first axis is pages."""
        scales = [scales for scales in (self.key_scale, self.value_scale) if scales and scales[0].dim() > 2]
        return [self.keys, self.values, *scales]

    @property
    def bytes_per_token(self) -> list[int]:
        """Bytes of each layer's keys, values and scales"""
        return [sum(held[0, 0].nbytes for held in layer) for layer in zip(*self.in_pages, strict=True)]

    @property
    def size_bytes(self) -> int:
        scales = (self.key_scale or []) + (self.value_scale or [])
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values, *scales))

    def scales(self, layer: int) -> tuple[Tensor, Tensor] | tuple[None, None]:
        """(key_scale, value_scale) of a layer"""
        if self.key_scale is None or self.value_scale is None:
            return None, None
        return self.key_scale[layer], self.value_scale[layer]


def zero_scales(
    num_layers: int, num_pages: int, page_size: int, num_kv_heads: int, dtype: torch.dtype, device: str
) -> list[Tensor]:
    """Scales per token of keys or of values that are codes of this type"""
    shape, of_scale = (num_pages, page_size, num_kv_heads), torch.float32
    if dtype == torch.int8:
        shape, of_scale = (*shape, 2), torch.float16
    return [torch.zeros(shape, dtype=of_scale, device=device) for _ in range(num_layers)]


def zero_pages(
    num_layers: int, num_pages: int, page_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype, device: str
) -> Pages:
    shape = (num_pages, page_size, num_kv_heads, head_dim * dtype.itemsize)

    def zeros() -> Tensor:  # bytes, since not every operation knows FP8
        return torch.zeros(shape, dtype=torch.uint8, device=device).view(dtype)

    return Pages(*([zeros() for _ in range(num_layers)] for _ in range(2)))


@dataclass(frozen=True, slots=True)
class Rotation:
    """How a model's attention turns and weighs its heads.

    cos, sin       [positions, R / 2] float32
    windows        of each layer, keys that a query sees; None: all
    softmax_scale  None: D**-0.5
    """

    cos: Tensor
    sin: Tensor
    windows: list[int | None]
    softmax_scale: float | None = None


def step_inputs(max_pages: int) -> dict[str, Input]:
    """Inputs of a decode step, one token per sequence; max_pages that a sequence may have. Padding has no slot and no
    length.
    """
    return {
        "token": Input((), torch.int64, 0),
        "position": Input((), torch.int64, 0),
        "slot": Input((), torch.int64, -1),
        "block_table": Input((max_pages,), torch.int32, 0),
        "length": Input((), torch.int32, 0),
    }


def write_new(
    pages: Pages, rotation: Rotation, rows: dict[str, Tensor], layer: int, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """The queries [T, H, D] rotated; the new keys, rotated, and values are then in their slots.

    rows   position, slot [T]
    """
    keys, values, (key_scale, value_scale) = pages.keys[layer], pages.values[layer], pages.scales(layer)
    places = (rows["position"], rows["slot"], rotation.cos, rotation.sin)
    return rope_cache(RopeCache(query, key, value, keys, values, *places, key_scale=key_scale, value_scale=value_scale))


def attend_to(
    pages: Pages,
    rotation: Rotation,
    rows: dict[str, Tensor],
    cu_queries: Tensor | None = None,
    most_queries: int | None = None,
) -> Attend:
    """Attention of new tokens, whose keys and values are written first.

    rows          position, slot [T]; block_table [B, P], length [B], the new tokens counted; as `step_inputs` has them
    cu_queries    [B + 1] int32: whose the tokens are; None: each sequence has one
    most_queries  of one sequence
    """

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query = write_new(pages, rotation, rows, layer, query, key, value)
        keys, values, (key_scale, value_scale) = pages.keys[layer], pages.values[layer], pages.scales(layer)
        where = {"block_table": rows["block_table"], "seq_lens": rows["length"]}
        cache = PagedCache(keys, values, key_scale, value_scale, **where)
        how = {"window": rotation.windows[layer], "softmax_scale": rotation.softmax_scale}
        if cu_queries is None:
            return paged_decode(PagedDecode(query[:, None], cache, **how))[0][:, 0]
        return paged_prefill(PagedPrefill(query, cache, cu_queries=cu_queries, most_queries=most_queries, **how))[0]

    return attend
