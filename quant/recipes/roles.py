"""The role of a tensor in its model, read from its canonical name."""

from dataclasses import dataclass
from enum import Enum

from quant.models import ARCHITECTURES, ModelConfig, split_name


class Role(Enum):
    """The values are GGUF's words."""

    EMBEDDING = "token_embd"
    HEAD = "output"
    ATTN_Q = "attn_q"
    ATTN_K = "attn_k"
    ATTN_V = "attn_v"
    ATTN_OUTPUT = "attn_output"
    FFN_GATE = "ffn_gate"
    FFN_UP = "ffn_up"
    FFN_DOWN = "ffn_down"
    ROUTER = "ffn_gate_inp"
    OTHER = "other"


# Names of other shapes of the same role: a projection that makes values and others counts as values, as in llama.cpp.
SAME_ROLE = {"attn_kv_b": Role.ATTN_V, "attn_qkv": Role.ATTN_V} | {
    f"ffn_{part}_{kind}": Role(f"ffn_{part}") for part in ("gate", "up", "down") for kind in ("exps", "shexp")
}


def _role(gguf_name: str) -> Role:
    """e.g. "blk.{}.attn_q.weight" -> ATTN_Q; OTHER for norms and biases"""
    module, _, kind = gguf_name.rpartition(".")
    word = module.rpartition(".")[2]
    if kind != "weight":
        return Role.OTHER
    return SAME_ROLE.get(word) or next((role for role in Role if role.value == word), Role.OTHER)


# Row of the architecture's table -> role
ROLE_OF_NAME = {row.name: _role(row.gguf_name) for model in ARCHITECTURES.values() for row in model.tensors}
MATRICES = {row.name for model in ARCHITECTURES.values() for row in model.tensors if len(row.shape) > 1}


@dataclass(frozen=True, slots=True)
class Place:
    """Role of a tensor and its decoder layer (None outside the layers)."""

    role: Role
    layer: int | None


def place_of(name: str) -> Place:
    """e.g. "model.layers.3.self_attn.v_proj.weight" -> ATTN_V in layer 3"""
    row, layer, _ = split_name(name)
    return Place(ROLE_OF_NAME.get(row, Role.OTHER), layer)


def gguf_place(name: str, model: ModelConfig) -> Place:
    """As `place_of`, except for a tensor that GGUF stacks with others: the role of the stack."""
    pattern, layer, _ = split_name(name)
    row = next((row for row in model.architecture.tensors if row.name == pattern), None)
    stack = None if row is None else row.gguf_stack
    return Place(ROLE_OF_NAME.get(pattern, Role.OTHER) if stack is None else _role(stack.name), layer)


def is_decoder_linear(name: str) -> bool:
    """Whether it is the weight of a linear in a decoder layer, which a method quantizes; a router of experts is not."""
    row, layer, _ = split_name(name)
    return layer is not None and row in MATRICES and ROLE_OF_NAME[row] is not Role.ROUTER
