"""Attention over pages on a device by torch instead of gpu_kernels: for comparison, one sequence after the other."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from gpu_kernels.decode.pages import Attend, Pages, Rotation, write_new
from qbench.runtime.attention.in_torch import CausalAttention
from quant.models import AttentionRule


def attend_in_torch(
    pages: Pages,
    rotation: Rotation,
    rows: dict[str, Tensor],
    cu_queries: np.ndarray,
    rules: Sequence[AttentionRule],
    attention: CausalAttention,
) -> Attend:
    """`attend_to` by a function of torch, in the dtype of the queries.

    The pages of each sequence are read into one tensor.

    rows        as `attend_to` takes them
    cu_queries  [B + 1]: whose the tokens are
    rules       of each layer
    """
    lengths = rows["length"].tolist()

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query = write_new(pages, rotation, rows, layer, query, key, value)
        sides = list(zip((pages.keys[layer], pages.values[layer]), pages.scales(layer), strict=True))
        outputs = []
        for b, (start, end) in enumerate(pairwise(cu_queries.tolist())):
            k, v = (read_side(held, rows["block_table"][b], lengths[b], scale, query.dtype) for held, scale in sides)
            out = attention(query[start:end].transpose(0, 1)[None], k, v, rules[layer])  # [1, H, t, D]
            outputs.append(out[0].transpose(0, 1))
        return torch.cat(outputs)

    return attend


def read_side(held: Tensor, table: Tensor, length: int, scale: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Keys or values of one sequence [1, G, S, D], from pages [num_pages, page_size, G, D]."""
    page_size = held.shape[1]
    used = table[: -(-length // page_size)].long()
    # As bytes, since torch does not index FP8.
    some = held.view(torch.uint8)[used].view(held.dtype).flatten(0, 1)[:length]  # [S, G, D]
    if scale is not None and scale.dim() > 2:  # of each token
        scale = scale[used].flatten(0, 1)[:length]
    if scale is not None and held.dtype == torch.int8:
        factor, minimum = scale.float()[..., None, :].unbind(-1)  # [S, G, 1]
        return (factor * (some.float() + 128) + minimum).to(dtype).transpose(0, 1)[None]
    found = some.to(dtype) if scale is None else (some.float() * scale[..., None]).to(dtype)
    return found.transpose(0, 1)[None]
