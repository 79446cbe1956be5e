"""The tensors a config implies, checked against what a source has before any byte is read."""

from collections.abc import Mapping

from qbench.runtime.config import ModelConfig
from quant.errors import InputError
from quant.source import TensorInfo

EMBEDDING = "model.embed_tokens"
FINAL_NORM = "model.norm"
HEAD = "lm_head"

# Written by some exporters, never read: frequencies follow from the config.
IGNORED_SUFFIXES = (".rotary_emb.inv_freq",)


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Tensor name -> shape, in the order of the forward pass; a tied head has no tensor of its own."""
    shapes: dict[str, tuple[int, ...]] = {f"{EMBEDDING}.weight": (config.vocab_size, config.hidden_size)}
    for layer in range(config.num_layers):
        for name, shape in _layer_shapes(config).items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    shapes[f"{FINAL_NORM}.weight"] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        shapes[f"{HEAD}.weight"] = (config.vocab_size, config.hidden_size)
    return shapes


def _layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, ffn = config.hidden_size, config.ffn_size
    q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    linears = {
        "self_attn.q_proj": (q_size, hidden, config.attention_bias),
        "self_attn.k_proj": (kv_size, hidden, config.attention_bias),
        "self_attn.v_proj": (kv_size, hidden, config.attention_bias),
        "self_attn.o_proj": (hidden, q_size, config.attention_bias),
        "mlp.gate_proj": (ffn, hidden, config.mlp_bias),
        "mlp.up_proj": (ffn, hidden, config.mlp_bias),
        "mlp.down_proj": (hidden, ffn, config.mlp_bias),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    for name, (num_rows, row_size, has_bias) in linears.items():
        shapes[f"{name}.weight"] = (num_rows, row_size)
        if has_bias:
            shapes[f"{name}.bias"] = (num_rows,)
    return shapes


def check_tensors(config: ModelConfig, tensors: Mapping[str, TensorInfo]) -> None:
    """raises InputError for a tensor that is missing, of the wrong shape, or that the config has no place for."""
    expected = expected_shapes(config)
    for name, shape in expected.items():
        if name not in tensors:
            raise InputError(f"tensor {name} is missing, expected shape {list(shape)}")
        if tensors[name].shape != shape:
            raise InputError(f"tensor {name} has shape {list(tensors[name].shape)}, expected {list(shape)}")
    ignored = {f"{HEAD}.weight"} if config.tie_word_embeddings else set()
    for name in tensors:
        if name not in expected and name not in ignored and not name.endswith(IGNORED_SUFFIXES):
            raise InputError(f"tensor {name} has no place in a {config.architecture} model of this config")
