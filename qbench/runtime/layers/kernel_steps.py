"""Which halves of a model's layers are steps that cpu_kernels take by themselves, by what the architecture asks for."""

from quant.models import ModelConfig, row_names
from quant.models.rows import LAYER


def has_attention_step(config: ModelConfig) -> bool:
    """RMS norm, q, k and v, rotation of whole heads, attention to all or a window, output, residual."""
    plain = all(config.attention_rule(layer).is_plain for layer in range(config.num_layers))
    return plain and _is_rms(config, "self_attn") and config.has_rope and config.rope_dim == config.head_dim


def has_net_step(config: ModelConfig) -> bool:
    """RMS norm, gate and up, SiLU, down, residual."""
    has_gate = config.moe is not None or f"{LAYER}.mlp.gate_proj.weight" in row_names(config)
    return has_gate and config.activation == "silu" and _is_rms(config, "mlp")


def _is_rms(config: ModelConfig, module: str) -> bool:
    """Before the half of the layer, and no norm behind it."""
    return config.architecture.norm == "rms" and f"{LAYER}.{module}.output_norm.weight" not in row_names(config)
