"""YaRN in GGUF's words: a magnitude relative to the paper's, or DeepSeek's share of it that is in the softmax."""

from collections.abc import Callable
from typing import Any

from quant.errors import InputError
from quant.models import ModelConfig, yarn

YARN = "yarn"
TYPE, FACTOR = "rope.scaling.type", "rope.scaling.factor"
ORIGINAL_CONTEXT = "rope.scaling.original_context_length"
BETAS = {"beta_fast": "rope.scaling.yarn_beta_fast", "beta_slow": "rope.scaling.yarn_beta_slow"}
ATTENTION_FACTOR = "rope.scaling.attn_factor"  # beside the paper's, which llama.cpp always applies
LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"  # a tenth of mscale_all_dim, in files of latent attention


def yarn_metadata(config: ModelConfig) -> dict[str, int | float | str]:
    """GGUF key after "ARCH." -> value

    raises   InputError for magnitudes that llama.cpp does not compute
    """
    rope = config.rope
    metadata = {TYPE: YARN, FACTOR: rope.factor, ORIGINAL_CONTEXT: rope.original_max_position_embeddings}
    metadata |= {key: getattr(rope, name) for name, key in BETAS.items()}
    if not config.mla:
        return metadata | {ATTENTION_FACTOR: rope.rotation_scale / yarn.magnitude(rope.factor)}
    if not rope.mscale_all_dim or rope.mscale != rope.mscale_all_dim or rope.attention_factor is not None:
        raise InputError(
            f"yarn has mscale {rope.mscale}, mscale_all_dim {rope.mscale_all_dim} and attention_factor "
            f"{rope.attention_factor}; llama.cpp knows latent attention with equal mscales alone; write a Hugging Face "
            "directory"
        )
    return metadata | {LOG_MULTIPLIER: 0.1 * rope.mscale_all_dim}


def yarn_scaling(get: Callable[..., Any], has_mla: bool) -> dict[str, Any]:
    """The `rope_scaling` of a config.json. get: (key, type, required=) -> the value, or None where it is absent"""
    factor = get(FACTOR, float, required=True)
    scaling = {"rope_type": YARN, "factor": factor}
    scaling["original_max_position_embeddings"] = get(ORIGINAL_CONTEXT, int, required=True)
    scaling |= {name: value for name, key in BETAS.items() if (value := get(key, float)) is not None}
    if has_mla:
        mscale = _short(10 * get(LOG_MULTIPLIER, float, required=True))
        return scaling | {"mscale": mscale, "mscale_all_dim": mscale}
    relative = get(ATTENTION_FACTOR, float)
    # A key that says 1 says nothing: the paper's magnitude follows from the factor.
    return scaling if relative in (None, 1.0) else scaling | {"attention_factor": relative * yarn.magnitude(factor)}


def _short(value: float) -> float:
    """0.707 for 0.7070000000000001: a float32 has no more than 7 digits to give."""
    return float(f"{value:.7g}")
