"""The up-projection of latent attention as newer GGUF files split it: attn_k_b and attn_v_b for attn_kv_b."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from quant.artifacts.gguf_header import GGUFTensor
from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.qtensor import QTensor

SPLIT, WHOLE = ("attn_k_b.weight", "attn_v_b.weight"), "attn_kv_b.weight"
FLOATS = ("f32", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class SplitUp:
    """Two tensors of a file that are one of the model: every head's key rows, then its value rows, on the latent.

    attn_k_b  [H, R, N]   a head's part, turned around: llama.cpp multiplies queries by it
    attn_v_b  [H, V, R]
    together  [H (N + V), R], in their own format if that is one kind of float, else in float32: blocks of weights along
              N cannot be transposed
    """

    k_b: GGUFTensor
    v_b: GGUFTensor

    @property
    def shape(self) -> tuple[int, int]:
        num_heads, rank, nope = self.k_b.shape
        return num_heads * (nope + self.v_b.shape[1]), rank

    @property
    def format(self) -> str:
        return self.k_b.format if self.k_b.format == self.v_b.format and self.k_b.format in FLOATS else "f32"

    @property
    def size_bytes(self) -> int:
        return get_format(self.format).size_bytes(self.shape)

    def read(self, read: Callable[[GGUFTensor], QTensor]) -> QTensor:
        """read: from a file's tensor to its bytes"""
        keys, values = dequantize(read(self.k_b)).swapaxes(1, 2), dequantize(read(self.v_b))  # [H, N, R], [H, V, R]
        joined = np.concatenate((keys, values), axis=1).reshape(self.shape)
        return get_format(self.format).quantize_ref(joined)


def join_split(tensors: Mapping[str, GGUFTensor], where: str) -> dict[str, GGUFTensor | SplitUp]:
    """GGUF name -> tensor, with attn_kv_b where a file has it in two parts; a file that has both ways keeps the whole.

    raises   InputError for one part without the other, or shapes that do not belong together
    """
    joined: dict[str, GGUFTensor | SplitUp] = {}
    for name, tensor in tensors.items():
        block, _, word = name.partition(".attn_")
        if f"attn_{word}" not in SPLIT:
            joined[name] = tensor
        elif (whole := f"{block}.{WHOLE}") not in tensors:
            joined[whole] = _split_up(tensors, block, where)
    return joined


def _split_up(tensors: Mapping[str, GGUFTensor], block: str, where: str) -> SplitUp:
    k_name, v_name = (f"{block}.{name}" for name in SPLIT)
    missing = next((name for name in (k_name, v_name) if name not in tensors), None)
    if missing:
        raise InputError(f"{where}: tensor {missing!r} is missing; the file is incomplete")
    k_b, v_b = tensors[k_name], tensors[v_name]
    fits = len(k_b.shape) == len(v_b.shape) == 3 and (k_b.shape[0], k_b.shape[1]) == (v_b.shape[0], v_b.shape[2])
    if not fits:
        raise InputError(
            f"{where}: tensors {k_name!r} of {k_b.shape} and {v_name!r} of {v_b.shape}, expected [heads, rank, "
            "unrotated key] and [heads, value, rank]"
        )
    return SplitUp(k_b, v_b)
