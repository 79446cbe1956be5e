"""What a tensor does in its model, read from its canonical name."""

import re
from dataclasses import dataclass
from enum import Enum

from quant.models import ARCHITECTURES


class Role(Enum):
    EMBEDDING = "token_embd"
    HEAD = "output"
    ATTN_Q = "attn_q"
    ATTN_K = "attn_k"
    ATTN_V = "attn_v"
    ATTN_OUTPUT = "attn_output"
    FFN_GATE = "ffn_gate"
    FFN_UP = "ffn_up"
    FFN_DOWN = "ffn_down"
    OTHER = "other"


def _role(gguf_name: str) -> Role:
    """e.g. "blk.{}.attn_q.weight" -> ATTN_Q; OTHER for norms and biases"""
    module, _, kind = gguf_name.rpartition(".")
    word = module.rpartition(".")[2]
    return next((role for role in Role if role.value == word and kind == "weight"), Role.OTHER)


# Canonical name with "{}" for the layer -> role; the values of Role are GGUF's words for the same tensors.
ROLE_OF_NAME = {row.name: _role(row.gguf_name) for model in ARCHITECTURES.values() for row in model.tensors}


@dataclass(frozen=True, slots=True)
class Place:
    """Role of a tensor and the decoder layer it stands in (None outside the layers)."""

    role: Role
    layer: int | None


def place_of(name: str) -> Place:
    """e.g. "model.layers.3.self_attn.v_proj.weight" -> ATTN_V in layer 3"""
    layer = re.search(r"(?<=\.layers\.)\d+(?=\.)", name)
    if layer is None:
        return Place(ROLE_OF_NAME.get(name, Role.OTHER), None)
    pattern = f"{name[: layer.start()]}{{}}{name[layer.end() :]}"
    return Place(ROLE_OF_NAME.get(pattern, Role.OTHER), int(layer[0]))
