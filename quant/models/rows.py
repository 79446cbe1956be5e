"""One kind of tensor as a table row, in both naming schemes, and the rows that most decoders share."""

from dataclasses import dataclass, replace

from quant.models.moe import ExpertKeys
from quant.models.stored import Stored

LAYER = "model.layers.{}"
BLOCK = "blk.{}"
CHOICE_BIAS = "e_score_correction_bias"  # of a router


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One kind of tensor. The first "{}" of a name is the layer's number; the other words are fields of ModelConfig.

    shape    one field a dimension; a dot leads into a part of the config
    heads    field of the head count whose RoPE row order differs in GGUF, or None
    only_if  field that says whether the model has this tensor, or None for always
    experts  field of the number of experts that each have one: the second "{}" of `name`. GGUF stacks them all,
             in order, as one tensor `gguf_name` of shape [experts, *shape]. None for a tensor of the whole layer
    layers   "dense" or "moe": the layers that have it, of a model that has both; None for all
    stored   where a Hugging Face checkpoint keeps it, if not by itself under `name`
    optional  whether a file may lack it, which means zeros to llama.cpp and transformers
    gguf_stack  the GGUF tensor that holds it and others, or None; `gguf_name` is its name if it were by itself
    """

    name: str
    gguf_name: str
    shape: tuple[str, ...]
    heads: str | None = None
    only_if: str | None = None
    experts: str | None = None
    layers: str | None = None
    stored: Stored | None = None
    optional: bool = False
    gguf_stack: Stored | None = None


def linear(name: str, gguf_name: str, shape: tuple[str, str], *, heads: str | None = None) -> TensorRow:
    """The weight of a decoder layer's linear."""
    return TensorRow(f"{LAYER}.{name}.weight", f"{BLOCK}.{gguf_name}.weight", shape, heads)


def biased(
    name: str,
    gguf_name: str,
    shape: tuple[str, str],
    *,
    bias: str | None = None,
    heads: str | None = None,
    optional: bool = False,
) -> tuple[TensorRow, TensorRow]:
    """Weight and bias of a decoder layer's linear.

    bias      the field that says whether it has one, or None for always; one field speaks for several linears, and a
              file may lack the biases of some of them
    optional  of the bias, if `bias` is None
    """
    name_of_bias, in_gguf = f"{LAYER}.{name}.bias", f"{BLOCK}.{gguf_name}.bias"
    return (
        linear(name, gguf_name, shape, heads=heads),
        TensorRow(name_of_bias, in_gguf, shape[:1], heads, only_if=bias, optional=optional or bias is not None),
    )


def norm(name: str, gguf_name: str, size: str = "hidden_size") -> TensorRow:
    return TensorRow(f"{LAYER}.{name}.weight", f"{BLOCK}.{gguf_name}.weight", (size,))


def swiglu(
    name: str,
    size: str,
    gguf_suffix: str = "",
    projections: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> tuple[TensorRow, ...]:
    """gate, up and down of one feed-forward net under `name`, `size` wide. projections: their names, in this order"""
    gate, up, down = projections
    return (
        linear(f"{name}.{gate}", f"ffn_gate{gguf_suffix}", (size, "hidden_size")),
        linear(f"{name}.{up}", f"ffn_up{gguf_suffix}", (size, "hidden_size")),
        linear(f"{name}.{down}", f"ffn_down{gguf_suffix}", ("hidden_size", size)),
    )


def experts(keys: ExpertKeys) -> tuple[TensorRow, ...]:
    """The router, and the bias of its choice if it has one; then gate, up and down of every expert."""
    router = linear(f"{keys.module}.gate", "ffn_gate_inp", ("moe.num_experts", "hidden_size"))
    bias = TensorRow(
        f"{LAYER}.{keys.module}.gate.{CHOICE_BIAS}",
        f"{BLOCK}.exp_probs_b.bias",
        ("moe.num_experts",),
        only_if="moe.has_choice_bias",
    )
    each = swiglu(f"{keys.module}.experts.{{}}", "moe.expert_ffn_size", "_exps", keys.projections)
    return (router, bias, *(replace(row, experts="moe.num_experts") for row in each))


def some(*rows: TensorRow, layers: str | None = None, only_if: str | None = None) -> tuple[TensorRow, ...]:
    """The same rows, for some layers or some models alone. only_if: None leaves each row's own"""
    return tuple(replace(row, layers=layers, only_if=only_if or row.only_if) for row in rows)


def stacked(*rows: TensorRow, stored: str, gguf: str, heads: str | None = None) -> tuple[TensorRow, ...]:
    """Rows of linears, with or without biases, whose weights checkpoint and GGUF each keep in one tensor.

    stored, gguf  the module's name there; heads: see `Stored`, of the checkpoint alone
    """

    def placed(row: TensorRow) -> TensorRow:
        kind = row.name.rpartition(".")[2]
        members = [other for other in rows if other.name.endswith(kind)]
        sizes, place = tuple(other.shape[0] for other in members), members.index(row)
        name = stored if "{}" in stored else f"{LAYER}.{stored}"
        return replace(
            row,
            stored=Stored(f"{name}.{kind}", sizes, place, heads),
            gguf_stack=Stored(f"{BLOCK}.{gguf}.{kind}", sizes, place),
        )

    return tuple(map(placed, rows))
