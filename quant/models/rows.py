"""One kind of tensor as a table row, in both naming schemes, and the rows that most decoders share."""

from dataclasses import dataclass, replace

LAYER = "model.layers.{}"
BLOCK = "blk.{}"
EXPERTS = "mlp.experts.{}"


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One kind of tensor. The first "{}" of a name is the layer's number; the other words are fields of ModelConfig.

    shape    one field a dimension; a dot leads into a part of the config
    heads    field of the head count whose RoPE row order differs in GGUF, or None
    only_if  field that tells whether the model has this tensor, or None for always
    experts  field of the number of experts that each have one: the second "{}" of `name`. GGUF stacks them all,
             in order, as one tensor `gguf_name` of shape [experts, *shape]. None for a tensor of the whole layer
    layers   "dense" or "moe": the layers that have it, of a model that has both; None for all
    """

    name: str
    gguf_name: str
    shape: tuple[str, ...]
    heads: str | None = None
    only_if: str | None = None
    experts: str | None = None
    layers: str | None = None


def linear(name: str, gguf_name: str, shape: tuple[str, str], *, heads: str | None = None) -> TensorRow:
    """The weight of a decoder layer's linear."""
    return TensorRow(f"{LAYER}.{name}.weight", f"{BLOCK}.{gguf_name}.weight", shape, heads)


def biased(
    name: str, gguf_name: str, shape: tuple[str, str], *, bias: str | None = None, heads: str | None = None
) -> tuple[TensorRow, TensorRow]:
    """Weight and bias of a decoder layer's linear. bias: the field that tells whether it has one, or None for always"""
    return (
        linear(name, gguf_name, shape, heads=heads),
        TensorRow(f"{LAYER}.{name}.bias", f"{BLOCK}.{gguf_name}.bias", shape[:1], heads, only_if=bias),
    )


def norm(name: str, gguf_name: str, size: str = "hidden_size") -> TensorRow:
    return TensorRow(f"{LAYER}.{name}.weight", f"{BLOCK}.{gguf_name}.weight", (size,))


def swiglu(name: str, size: str, gguf_suffix: str = "") -> tuple[TensorRow, ...]:
    """gate, up and down of one feed-forward net under `name`, `size` wide."""
    return (
        linear(f"{name}.gate_proj", f"ffn_gate{gguf_suffix}", (size, "hidden_size")),
        linear(f"{name}.up_proj", f"ffn_up{gguf_suffix}", (size, "hidden_size")),
        linear(f"{name}.down_proj", f"ffn_down{gguf_suffix}", ("hidden_size", size)),
    )


def experts() -> tuple[TensorRow, ...]:
    """The router, then gate, up and down of every expert."""
    router = linear("mlp.gate", "ffn_gate_inp", ("moe.num_experts", "hidden_size"))
    each = swiglu(EXPERTS, "moe.expert_ffn_size", "_exps")
    return (router, *(replace(row, experts="moe.num_experts") for row in each))


def some(*rows: TensorRow, layers: str | None = None, only_if: str | None = None) -> tuple[TensorRow, ...]:
    """The same rows, for some layers or some models alone."""
    return tuple(replace(row, layers=layers, only_if=only_if) for row in rows)
