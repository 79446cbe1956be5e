"""Gemma 2 and 3: RMS norms before and behind both halves of a layer, and windows in most layers.

A checkpoint keeps a norm's weight less 1; here, and in GGUF, it is the factor itself.
"""

from dataclasses import replace

from quant.models.architecture import FINAL_NORM, Architecture, decoder
from quant.models.rows import LAYER, TensorRow, linear, norm, swiglu
from quant.models.stored import Stored


def _norm(name: str, gguf_name: str, stored: str | None = None, size: str = "hidden_size") -> TensorRow:
    """stored: its name in a checkpoint, if that is not `name`"""
    return replace(norm(name, gguf_name, size), stored=Stored(f"{LAYER}.{stored or name}.weight", offset=1.0))


def _layer(*head_norms: TensorRow) -> tuple[TensorRow, ...]:
    return (
        _norm("input_layernorm", "attn_norm"),
        linear("self_attn.q_proj", "attn_q", ("q_size", "hidden_size")),
        linear("self_attn.k_proj", "attn_k", ("kv_size", "hidden_size")),
        linear("self_attn.v_proj", "attn_v", ("kv_size", "hidden_size")),
        *head_norms,
        linear("self_attn.o_proj", "attn_output", ("hidden_size", "q_size")),
        _norm("self_attn.output_norm", "post_attention_norm", "post_attention_layernorm"),
        _norm("post_attention_layernorm", "ffn_norm", "pre_feedforward_layernorm"),
        *swiglu("mlp", "ffn_size"),
        _norm("mlp.output_norm", "post_ffw_norm", "post_feedforward_layernorm"),
    )


_FINAL_NORM = TensorRow(FINAL_NORM, "output_norm.weight", ("hidden_size",), stored=Stored(FINAL_NORM, offset=1.0))
_DEFAULTS = {
    "hidden_act": "gelu_pytorch_tanh",
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "tie_word_embeddings": True,
}
_ONLY = {"attention_bias": False}

GEMMA2 = Architecture(
    name="Gemma2ForCausalLM",
    model_type="gemma2",
    gguf_arch="gemma2",
    tensors=decoder(*_layer(), final_norm=(_FINAL_NORM,)),
    windows="but the last of each group",
    scaled_embedding=True,
    keys={"hidden_act": "hidden_activation"},
    defaults=_DEFAULTS | {"sliding_window_pattern": 2, "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0},
    only=_ONLY,
)

GEMMA3 = Architecture(
    name="Gemma3ForCausalLM",
    model_type="gemma3_text",
    gguf_arch="gemma3",
    tensors=decoder(
        *_layer(
            _norm("self_attn.q_norm", "attn_q_norm", size="head_dim"),
            _norm("self_attn.k_norm", "attn_k_norm", size="head_dim"),
        ),
        final_norm=(_FINAL_NORM,),
    ),
    windows="but the last of each group",
    local_theta=1e4,
    scaled_embedding=True,
    keys={"hidden_act": "hidden_activation"},
    defaults=_DEFAULTS | {"sliding_window_pattern": 6, "rope_theta": 1e6},
    only=_ONLY,
)
