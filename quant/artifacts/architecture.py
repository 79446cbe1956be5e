"""What a model of each known architecture consists of: one table row a tensor, in both naming schemes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quant.errors import InputError


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One kind of tensor. "{}" in a name is the layer's number.

    shape   one size name a dimension, see `sizes`
    heads   config key of the head count whose RoPE row order differs in GGUF, or None
    """

    name: str
    gguf_name: str
    shape: tuple[str, ...]
    heads: str | None = None


@dataclass(frozen=True, slots=True)
class Architecture:
    """A row of `ARCHITECTURES`. unsupported: config values that would change the maths."""

    name: str
    model_type: str
    gguf_arch: str
    required: tuple[str, ...]
    unsupported: Mapping[str, tuple[Any, ...]]
    tensors: tuple[TensorRow, ...]


EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
_LAYER, _BLOCK = "model.layers.{}.", "blk.{}."

LLAMA = Architecture(
    name="LlamaForCausalLM",
    model_type="llama",
    gguf_arch="llama",
    required=(
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
        "rms_norm_eps",
    ),
    unsupported={"attention_bias": (True,), "mlp_bias": (True,)},
    tensors=(
        TensorRow(EMBEDDING, "token_embd.weight", ("vocab", "hidden")),
        TensorRow(f"{_LAYER}input_layernorm.weight", f"{_BLOCK}attn_norm.weight", ("hidden",)),
        TensorRow(f"{_LAYER}self_attn.q_proj.weight", f"{_BLOCK}attn_q.weight", ("q", "hidden"), "num_attention_heads"),
        TensorRow(
            f"{_LAYER}self_attn.k_proj.weight", f"{_BLOCK}attn_k.weight", ("kv", "hidden"), "num_key_value_heads"
        ),
        TensorRow(f"{_LAYER}self_attn.v_proj.weight", f"{_BLOCK}attn_v.weight", ("kv", "hidden")),
        TensorRow(f"{_LAYER}self_attn.o_proj.weight", f"{_BLOCK}attn_output.weight", ("hidden", "q")),
        TensorRow(f"{_LAYER}post_attention_layernorm.weight", f"{_BLOCK}ffn_norm.weight", ("hidden",)),
        TensorRow(f"{_LAYER}mlp.gate_proj.weight", f"{_BLOCK}ffn_gate.weight", ("ffn", "hidden")),
        TensorRow(f"{_LAYER}mlp.up_proj.weight", f"{_BLOCK}ffn_up.weight", ("ffn", "hidden")),
        TensorRow(f"{_LAYER}mlp.down_proj.weight", f"{_BLOCK}ffn_down.weight", ("hidden", "ffn")),
        TensorRow("model.norm.weight", "output_norm.weight", ("hidden",)),
        TensorRow(HEAD, "output.weight", ("vocab", "hidden")),
    ),
)

ARCHITECTURES: dict[str, Architecture] = {LLAMA.name: LLAMA}


@dataclass(frozen=True, slots=True)
class ExpectedTensor:
    """One tensor of one model. heads: number of heads whose rows GGUF orders differently, 0 for none."""

    gguf_name: str
    shape: tuple[int, ...]
    heads: int


def architecture_of(config: Mapping[str, Any], where: str) -> Architecture:
    """The table row for a config. raises InputError if it is unknown, lacks keys or asks for other maths."""
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{where}: key 'architectures' is missing or no list of names; known: {_known()}")
    if names[0] not in ARCHITECTURES:
        raise InputError(f"{where}: architecture {names[0]!r} is unknown; known: {_known()}")
    architecture = ARCHITECTURES[names[0]]
    for key in architecture.required:
        if key not in config:
            raise InputError(f"{where}: key {key!r} is missing; {architecture.name} needs it")
    for key, values in architecture.unsupported.items():
        if config.get(key) in values:
            raise InputError(f"{where}: {key} = {config[key]!r} is not supported for {architecture.name}")
    activation = config.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise InputError(f"{where}: hidden_act {activation!r} is not supported; {architecture.name} runs with 'silu'")
    return architecture


def sizes(config: Mapping[str, Any], where: str) -> dict[str, int]:
    """The named sizes of the table's shapes, with `heads`, `kv_heads`, `head_dim` and `layers` beside them.

    raises   InputError for any number of the config that no model can have
    """

    def positive(key: str, default: int | None = None) -> int:
        value = config.get(key)
        value = default if value is None else value
        # No dimension of a real model comes near 2**31; past it, products stop fitting in 64 bits.
        if type(value) is not int or not 0 < value < 2**31:
            raise InputError(f"{where}: key {key!r} must be a whole number in 1 to 2**31 - 1, got {value!r}")
        return value

    eps = config.get("rms_norm_eps")
    if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 < eps < 1:
        raise InputError(f"{where}: key 'rms_norm_eps' must be a number between 0 and 1, got {eps!r}")
    positive("max_position_embeddings")
    hidden, heads = positive("hidden_size"), positive("num_attention_heads")
    kv_heads = positive("num_key_value_heads", heads)
    head_dim = positive("head_dim", max(hidden // heads, 1))
    if heads % kv_heads:
        raise InputError(f"{where}: {heads} attention heads cannot share {kv_heads} key-value heads evenly")
    if head_dim % 2:
        raise InputError(f"{where}: head size {head_dim} is odd, and RoPE turns pairs")
    return {
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "layers": positive("num_hidden_layers"),
        "vocab": positive("vocab_size"),
        "ffn": positive("intermediate_size"),
        "q": heads * head_dim,
        "kv": kv_heads * head_dim,
    }


def expected_tensors(config: Mapping[str, Any], where: str) -> dict[str, ExpectedTensor]:
    """Canonical name -> what the model must have under it, in file order."""
    architecture = architecture_of(config, where)
    size = sizes(config, where)
    if size["layers"] > 4096:  # the deepest published decoder has below 300; this bounds the table itself
        raise InputError(f"{where}: num_hidden_layers {size['layers']} is absurd, expected at most 4096")
    head_counts = {"num_attention_heads": size["heads"], "num_key_value_heads": size["kv_heads"], None: 0}
    before = [row for row in architecture.tensors if row.name == EMBEDDING]
    layer = [row for row in architecture.tensors if "{}" in row.name]
    after = [row for row in architecture.tensors if row.name != EMBEDDING and "{}" not in row.name]
    if config.get("tie_word_embeddings", False):
        after = [row for row in after if row.name != HEAD]
    numbered = [(row, 0) for row in before]
    numbered += [(row, number) for number in range(size["layers"]) for row in layer]
    numbered += [(row, 0) for row in after]
    return {
        row.name.format(number): ExpectedTensor(
            row.gguf_name.format(number), tuple(size[dim] for dim in row.shape), head_counts[row.heads]
        )
        for row, number in numbered
    }


def _known() -> str:
    return ", ".join(ARCHITECTURES)
