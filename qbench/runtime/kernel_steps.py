"""Which halves of a layer cpu_kernels can run as one step, by the architecture alone; see `layers/paths.py`."""

from quant.models import ModelConfig, row_names
from quant.models.online import DOWN_PROJ, KEYS
from quant.models.rows import LAYER


def weighs_scores(config: ModelConfig) -> bool:
    """Whether cpu_kernels attend by the model's rules: scaled products of all keys, or of a window of them."""
    return all(config.attention_rule(layer).is_plain for layer in range(config.num_layers))


def has_attention_step(config: ModelConfig) -> bool:
    """RMS norm, q, k and v, rotation of whole heads, attention to all or a window, output, residual."""
    rotates_whole_heads = config.has_rope and config.rope_dim == config.head_dim and KEYS not in config.online
    return weighs_scores(config) and _is_rms(config, "self_attn") and rotates_whole_heads


def has_net_step(config: ModelConfig) -> bool:
    """RMS norm, gate and up, SiLU, down, residual."""
    has_gate = config.moe is not None or f"{LAYER}.mlp.gate_proj.weight" in row_names(config)
    is_plain = DOWN_PROJ not in config.online and _is_rms(config, "mlp")
    return has_gate and config.activation == "silu" and is_plain


def _is_rms(config: ModelConfig, module: str) -> bool:
    """Before the half of the layer, and no norm behind it."""
    return config.architecture.norm == "rms" and f"{LAYER}.{module}.output_norm.weight" not in row_names(config)
