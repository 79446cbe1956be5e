"""What a model of each known architecture consists of: one table row a tensor, in both naming schemes."""

from dataclasses import dataclass

from quant.models.rows import TensorRow, biased, experts, linear, norm, some, swiglu


@dataclass(frozen=True, slots=True)
class Architecture:
    """name is the class in a config's `architectures`; tensors stand in file order, the layer's rows together.

    num_experts_key  the key of a config that counts routed experts, or None where every layer is dense
    has_mla          keys and values come from a latent, as DeepSeek's multi-head latent attention makes them
    """

    name: str
    model_type: str
    gguf_arch: str
    tensors: tuple[TensorRow, ...]
    num_experts_key: str | None = None
    has_mla: bool = False


EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"


def _decoder(*rows: TensorRow) -> tuple[TensorRow, ...]:
    """The rows of a layer between those of embedding, final norm and head."""
    return (
        TensorRow(EMBEDDING, "token_embd.weight", ("vocab_size", "hidden_size")),
        *rows,
        TensorRow(FINAL_NORM, "output_norm.weight", ("hidden_size",)),
        TensorRow(HEAD, "output.weight", ("vocab_size", "hidden_size"), only_if="has_head"),
    )


ATTENTION_NORM = norm("input_layernorm", "attn_norm")
FEED_FORWARD_NORM = norm("post_attention_layernorm", "ffn_norm")

# fmt: off
LLAMA = Architecture(
    name="LlamaForCausalLM",
    model_type="llama",
    gguf_arch="llama",
    tensors=_decoder(
        ATTENTION_NORM,
        *biased("self_attn.q_proj", "attn_q", ("q_size", "hidden_size"), bias="attention_bias", heads="num_heads"),
        *biased("self_attn.k_proj", "attn_k", ("kv_size", "hidden_size"), bias="attention_bias", heads="num_kv_heads"),
        *biased("self_attn.v_proj", "attn_v", ("kv_size", "hidden_size"), bias="attention_bias"),
        *biased("self_attn.o_proj", "attn_output", ("hidden_size", "q_size"), bias="attention_bias"),
        FEED_FORWARD_NORM,
        *biased("mlp.gate_proj", "ffn_gate", ("ffn_size", "hidden_size"), bias="mlp_bias"),
        *biased("mlp.up_proj", "ffn_up", ("ffn_size", "hidden_size"), bias="mlp_bias"),
        *biased("mlp.down_proj", "ffn_down", ("hidden_size", "ffn_size"), bias="mlp_bias"),
    ),
)

# llama.cpp turns the halves of a head for every Qwen, as Hugging Face does: no row changes its place.
QWEN2 = Architecture(
    name="Qwen2ForCausalLM",
    model_type="qwen2",
    gguf_arch="qwen2",
    tensors=_decoder(
        ATTENTION_NORM,
        *biased("self_attn.q_proj", "attn_q", ("q_size", "hidden_size")),
        *biased("self_attn.k_proj", "attn_k", ("kv_size", "hidden_size")),
        *biased("self_attn.v_proj", "attn_v", ("kv_size", "hidden_size")),
        linear("self_attn.o_proj", "attn_output", ("hidden_size", "q_size")),
        FEED_FORWARD_NORM,
        *swiglu("mlp", "ffn_size"),
    ),
)

_QWEN3_ATTENTION = (
    ATTENTION_NORM,
    *biased("self_attn.q_proj", "attn_q", ("q_size", "hidden_size"), bias="attention_bias"),
    norm("self_attn.q_norm", "attn_q_norm", "head_dim"),
    *biased("self_attn.k_proj", "attn_k", ("kv_size", "hidden_size"), bias="attention_bias"),
    norm("self_attn.k_norm", "attn_k_norm", "head_dim"),
    *biased("self_attn.v_proj", "attn_v", ("kv_size", "hidden_size"), bias="attention_bias"),
    *biased("self_attn.o_proj", "attn_output", ("hidden_size", "q_size"), bias="attention_bias"),
    FEED_FORWARD_NORM,
)

QWEN3 = Architecture(
    name="Qwen3ForCausalLM",
    model_type="qwen3",
    gguf_arch="qwen3",
    tensors=_decoder(*_QWEN3_ATTENTION, *swiglu("mlp", "ffn_size")),
)

QWEN3_MOE = Architecture(
    name="Qwen3MoeForCausalLM",
    model_type="qwen3_moe",
    gguf_arch="qwen3moe",
    tensors=_decoder(*_QWEN3_ATTENTION, *experts()),
    num_experts_key="num_experts",
)

DEEPSEEK_V2 = Architecture(
    name="DeepseekV2ForCausalLM",
    model_type="deepseek_v2",
    gguf_arch="deepseek2",
    tensors=_decoder(
        ATTENTION_NORM,
        *some(linear("self_attn.q_proj", "attn_q", ("q_size", "hidden_size")), only_if="mla.has_plain_q"),
        *some(
            linear("self_attn.q_a_proj", "attn_q_a", ("mla.q_lora_rank", "hidden_size")),
            norm("self_attn.q_a_layernorm", "attn_q_a_norm", "mla.q_lora_rank"),
            linear("self_attn.q_b_proj", "attn_q_b", ("q_size", "mla.q_lora_rank")),
            only_if="mla.q_lora_rank",
        ),
        linear("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", ("mla.latent_size", "hidden_size")),
        norm("self_attn.kv_a_layernorm", "attn_kv_a_norm", "mla.kv_lora_rank"),
        linear("self_attn.kv_b_proj", "attn_kv_b", ("kv_b_size", "mla.kv_lora_rank")),
        linear("self_attn.o_proj", "attn_output", ("hidden_size", "attention_out_size")),
        FEED_FORWARD_NORM,
        *some(*swiglu("mlp", "ffn_size"), layers="dense"),
        *some(*experts(), layers="moe"),
        *some(
            *swiglu("mlp.shared_experts", "moe.shared_ffn_size", "_shexp"), layers="moe", only_if="moe.shared_ffn_size"
        ),
    ),
    num_experts_key="n_routed_experts",
    has_mla=True,
)
# fmt: on

ARCHITECTURES: dict[str, Architecture] = {
    architecture.name: architecture for architecture in (LLAMA, QWEN2, QWEN3, QWEN3_MOE, DEEPSEEK_V2)
}
