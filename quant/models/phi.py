"""Phi-3: a Llama whose checkpoints keep q, k and v in one tensor, and gate and up in another."""

from quant.models.architecture import Architecture, decoder
from quant.models.rows import linear, norm, stacked, swiglu

_gate, _up, _down = swiglu("mlp", "ffn_size")

PHI3 = Architecture(
    name="Phi3ForCausalLM",
    partly_rotated=True,
    model_type="phi3",
    gguf_arch="phi3",
    tensors=decoder(
        norm("input_layernorm", "attn_norm"),
        *stacked(
            linear("self_attn.q_proj", "attn_q", ("q_size", "hidden_size")),
            linear("self_attn.k_proj", "attn_k", ("kv_size", "hidden_size")),
            linear("self_attn.v_proj", "attn_v", ("kv_size", "hidden_size")),
            stored="self_attn.qkv_proj",
            gguf="attn_qkv",
        ),
        linear("self_attn.o_proj", "attn_output", ("hidden_size", "q_size")),
        norm("post_attention_layernorm", "ffn_norm"),
        *stacked(_gate, _up, stored="mlp.gate_up_proj", gguf="ffn_up"),
        _down,
    ),
    windows="every",
    defaults={"sliding_window": None, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096},
    only={"attention_bias": False, "mlp_bias": False},
)
