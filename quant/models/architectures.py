"""What a model of each known architecture consists of: one table row a tensor, in both naming schemes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One kind of tensor. "{}" in a name is the layer's number; the other words are fields of ModelConfig.

    shape    one field a dimension
    heads    field of the head count whose RoPE row order differs in GGUF, or None
    only_if  field that tells whether the model has this tensor, or None for always
    """

    name: str
    gguf_name: str
    shape: tuple[str, ...]
    heads: str | None = None
    only_if: str | None = None


@dataclass(frozen=True, slots=True)
class Architecture:
    """name is the class in a config's `architectures`; tensors stand in file order, the layer's rows together."""

    name: str
    model_type: str
    gguf_arch: str
    tensors: tuple[TensorRow, ...]


EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"


def _linear(
    name: str, gguf_name: str, shape: tuple[str, str], *, bias: str, heads: str | None = None
) -> tuple[TensorRow, TensorRow]:
    """The two rows of a decoder layer's linear. bias: the field that tells whether it has one."""
    name, gguf_name = f"model.layers.{{}}.{name}", f"blk.{{}}.{gguf_name}"
    return (
        TensorRow(f"{name}.weight", f"{gguf_name}.weight", shape, heads),
        TensorRow(f"{name}.bias", f"{gguf_name}.bias", shape[:1], heads, only_if=bias),
    )


def _norm(name: str, gguf_name: str) -> TensorRow:
    return TensorRow(f"model.layers.{{}}.{name}.weight", f"blk.{{}}.{gguf_name}.weight", ("hidden_size",))


# fmt: off
LLAMA = Architecture(
    name="LlamaForCausalLM",
    model_type="llama",
    gguf_arch="llama",
    tensors=(
        TensorRow(EMBEDDING, "token_embd.weight", ("vocab_size", "hidden_size")),
        _norm("input_layernorm", "attn_norm"),
        *_linear("self_attn.q_proj", "attn_q", ("q_size", "hidden_size"), bias="attention_bias", heads="num_heads"),
        *_linear("self_attn.k_proj", "attn_k", ("kv_size", "hidden_size"), bias="attention_bias", heads="num_kv_heads"),
        *_linear("self_attn.v_proj", "attn_v", ("kv_size", "hidden_size"), bias="attention_bias"),
        *_linear("self_attn.o_proj", "attn_output", ("hidden_size", "q_size"), bias="attention_bias"),
        _norm("post_attention_layernorm", "ffn_norm"),
        *_linear("mlp.gate_proj", "ffn_gate", ("ffn_size", "hidden_size"), bias="mlp_bias"),
        *_linear("mlp.up_proj", "ffn_up", ("ffn_size", "hidden_size"), bias="mlp_bias"),
        *_linear("mlp.down_proj", "ffn_down", ("hidden_size", "ffn_size"), bias="mlp_bias"),
        TensorRow(FINAL_NORM, "output_norm.weight", ("hidden_size",)),
        TensorRow(HEAD, "output.weight", ("vocab_size", "hidden_size"), only_if="has_head"),
    ),
)
# fmt: on

ARCHITECTURES: dict[str, Architecture] = {LLAMA.name: LLAMA}
