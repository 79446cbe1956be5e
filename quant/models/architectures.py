"""Tensors of a model of each known architecture: one table row per tensor, in both naming schemes."""

from dataclasses import replace

from quant.models.architecture import Architecture, decoder
from quant.models.gemma import GEMMA2, GEMMA3
from quant.models.moe import ExpertKeys
from quant.models.older import BLOOM, GPT2, OPT
from quant.models.phi import PHI3
from quant.models.rows import TensorRow, biased, experts, linear, norm, some, swiglu

ATTENTION_NORM = norm("input_layernorm", "attn_norm")
FEED_FORWARD_NORM = norm("post_attention_layernorm", "ffn_norm")

# fmt: off
_LLAMA_ATTENTION = (
    ATTENTION_NORM,
    *biased("self_attn.q_proj", "attn_q", ("q_size", "hidden_size"), bias="attention_bias", heads="num_heads"),
    *biased("self_attn.k_proj", "attn_k", ("kv_size", "hidden_size"), bias="attention_bias", heads="num_kv_heads"),
    *biased("self_attn.v_proj", "attn_v", ("kv_size", "hidden_size"), bias="attention_bias"),
    *biased("self_attn.o_proj", "attn_output", ("hidden_size", "q_size"), bias="attention_bias"),
    FEED_FORWARD_NORM,
)

LLAMA = Architecture(
    name="LlamaForCausalLM",
    model_type="llama",
    gguf_arch="llama",
    tensors=decoder(
        *_LLAMA_ATTENTION,
        *biased("mlp.gate_proj", "ffn_gate", ("ffn_size", "hidden_size"), bias="mlp_bias"),
        *biased("mlp.up_proj", "ffn_up", ("ffn_size", "hidden_size"), bias="mlp_bias"),
        *biased("mlp.down_proj", "ffn_down", ("hidden_size", "ffn_size"), bias="mlp_bias"),
    ),
)

MISTRAL = replace(
    LLAMA,
    name="MistralForCausalLM",
    model_type="mistral",
    windows="every",
    gguf_mark=("attention.sliding_window", None),
    defaults={"sliding_window": 4096},
)

_MIXTRAL_EXPERTS = ExpertKeys("num_local_experts", "intermediate_size", "block_sparse_moe", ("w1", "w3", "w2"))

MIXTRAL = replace(
    LLAMA,
    name="MixtralForCausalLM",
    model_type="mixtral",
    tensors=decoder(*_LLAMA_ATTENTION, *experts(_MIXTRAL_EXPERTS)),
    experts=_MIXTRAL_EXPERTS,
    windows="every",
    gguf_mark=("expert_count", None),
    aliases={"num_experts": "num_local_experts"},
    defaults={"norm_topk_prob": True},
)


def _qwen(number: int, *layer: TensorRow, **defaults: int) -> Architecture:
    """Its layers from a configured one on have a window.

    llama.cpp turns the halves of a head for every Qwen, as Hugging Face does: no row changes its place.
    """
    return Architecture(
        name=f"Qwen{number}ForCausalLM",
        model_type=f"qwen{number}",
        gguf_arch=f"qwen{number}",
        windows="from a layer",
        defaults={"max_window_layers": 28, **defaults},
        tensors=decoder(*layer),
    )


QWEN2 = _qwen(
    2,
    ATTENTION_NORM,
    *biased("self_attn.q_proj", "attn_q", ("q_size", "hidden_size"), optional=True),
    *biased("self_attn.k_proj", "attn_k", ("kv_size", "hidden_size"), optional=True),
    *biased("self_attn.v_proj", "attn_v", ("kv_size", "hidden_size"), optional=True),
    linear("self_attn.o_proj", "attn_output", ("hidden_size", "q_size")),
    FEED_FORWARD_NORM,
    *swiglu("mlp", "ffn_size"),
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

QWEN3 = _qwen(3, *_QWEN3_ATTENTION, *swiglu("mlp", "ffn_size"), head_dim=128)

_QWEN3_EXPERTS = ExpertKeys("num_experts")

QWEN3_MOE = Architecture(
    name="Qwen3MoeForCausalLM",
    model_type="qwen3_moe",
    gguf_arch="qwen3moe",
    tensors=decoder(*_QWEN3_ATTENTION, *experts(_QWEN3_EXPERTS)),
    experts=_QWEN3_EXPERTS,
    aliases={"num_local_experts": "num_experts"},  # transformers writes it from version 5.8 on
)


def _deepseek(experts_of: ExpertKeys) -> tuple[TensorRow, ...]:
    return decoder(
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
        *some(*experts(experts_of), layers="moe"),
        *some(
            *swiglu("mlp.shared_experts", "moe.shared_ffn_size", "_shexp"), layers="moe", only_if="moe.shared_ffn_size"
        ),
    )


_DEEPSEEK_V2_EXPERTS = ExpertKeys("n_routed_experts", methods=("greedy", "group_limited_greedy"))
_DEEPSEEK_V3_EXPERTS = ExpertKeys("n_routed_experts", scoring="sigmoid", methods=("noaux_tc",))

DEEPSEEK_V2 = Architecture(
    name="DeepseekV2ForCausalLM",
    model_type="deepseek_v2",
    gguf_arch="deepseek2",
    tensors=_deepseek(_DEEPSEEK_V2_EXPERTS),
    experts=_DEEPSEEK_V2_EXPERTS,
    has_mla=True,
    aliases={"num_local_experts": "n_routed_experts"},
)

DEEPSEEK_V3 = replace(
    DEEPSEEK_V2,
    name="DeepseekV3ForCausalLM",
    model_type="deepseek_v3",
    tensors=_deepseek(_DEEPSEEK_V3_EXPERTS),
    experts=_DEEPSEEK_V3_EXPERTS,
    has_draft_layers=True,
    gguf_mark=("expert_gating_func", 2),  # llama.cpp's number of the sigmoid
)
# fmt: on

ARCHITECTURES: dict[str, Architecture] = {
    architecture.name: architecture
    for architecture in (
        LLAMA,
        MIXTRAL,
        MISTRAL,
        QWEN2,
        QWEN3,
        QWEN3_MOE,
        DEEPSEEK_V2,
        DEEPSEEK_V3,
        GEMMA2,
        GEMMA3,
        PHI3,
        GPT2,
        OPT,
        BLOOM,
    )
}
