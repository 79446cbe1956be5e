"""The same function, bit for bit, with the activation outliers of large models."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from quant.late import LateModule

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = LateModule("torch")


# Which weights read a norm's output. The last norm is left alone: its reader may be the tied embedding.
READERS = {
    "input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
}
# Large models' outliers are 20 to 150 times as large as the other channels. A power of two moves exponents alone, so
# that bfloat16 holds both sides of it exactly; this one is large enough that one int8 scale for all of a token's
# channels breaks the model.
FACTOR = 128.0
NORM_WEIGHT = re.compile(rf"(model\.layers\.\d+)\.({'|'.join(READERS)})\.weight")


def scale_channels(
    tensors: dict[str, Tensor], factor: float = FACTOR, channels_per_norm: int = 4, seed: int = 0
) -> dict[str, Tensor]:
    """The tensors with some norm-output channels `factor` times larger and their readers' columns as much smaller.

    tensors   Hugging Face Llama names; untouched
    returns   float32; the same channels in every layer, as in large models (Dettmers et al. 2022, arXiv:2208.07339,
              section 4)
    raises    ValueError where a norm has fewer than `channels_per_norm` channels
    """
    scaled = {name: tensor.float().clone() for name, tensor in tensors.items()}
    generator = torch.Generator().manual_seed(seed)
    for name in tensors:
        match = NORM_WEIGHT.fullmatch(name)
        if match is None:
            continue
        size = len(tensors[name])
        if size < channels_per_norm:
            raise ValueError(f"{name} has {size} channels, cannot scale {channels_per_norm}: ask for fewer")
        channels = torch.randperm(size, generator=generator.manual_seed(seed))[:channels_per_norm]
        layer, norm = match.groups()
        scaled[name][channels] *= factor
        for reader in READERS[norm]:
            scaled[f"{layer}.{reader}.weight"][:, channels] /= factor
    return scaled
