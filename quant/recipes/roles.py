"""What a tensor does in its model, read from its canonical name."""

import re
from dataclasses import dataclass
from enum import Enum


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


# Module name before ".weight" -> role; the values of Role are GGUF's words for the same tensors.
ROLE_OF_MODULE = {
    "embed_tokens": Role.EMBEDDING,
    "lm_head": Role.HEAD,
    "q_proj": Role.ATTN_Q,
    "k_proj": Role.ATTN_K,
    "v_proj": Role.ATTN_V,
    "o_proj": Role.ATTN_OUTPUT,
    "gate_proj": Role.FFN_GATE,
    "up_proj": Role.FFN_UP,
    "down_proj": Role.FFN_DOWN,
}


@dataclass(frozen=True, slots=True)
class Place:
    """Role of a tensor and the decoder layer it stands in (None outside the layers)."""

    role: Role
    layer: int | None


def place_of(name: str) -> Place:
    """e.g. "model.layers.3.self_attn.v_proj.weight" -> ATTN_V in layer 3"""
    layer = re.search(r"\.layers\.(\d+)\.", name)
    module, _, kind = name.rpartition(".")
    role = ROLE_OF_MODULE.get(module.rpartition(".")[2], Role.OTHER) if kind == "weight" else Role.OTHER
    return Place(role, int(layer[1]) if layer else None)
