"""GGUF's keys of families other than Llama's, and facts that llama.cpp knows without a key."""

from quant.artifacts.gguf_keys import KeyReader
from quant.errors import InputError
from quant.models import Architecture, ModelConfig
from quant.models.attention import window_of_layers
from quant.models.values import activation_of

HEAD_DIM_KEYS = ("attention.key_length", "attention.value_length", "rope.dimension_count")
RMS_EPS, LAYER_EPS = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"
# One width for all layers that have a window, which architectures differ in. llama.cpp reads it for Gemma; a "llama"
# with one, as Mistral's first models are, and a Phi-3 with one it takes for models without.
WINDOW = "attention.sliding_window"
WITH_WINDOWS = ("llama", "phi3", "gemma2", "gemma3")
LOCAL_THETA = "rope.freq_base_swa"
SOFTCAPS = {  # config.json key -> GGUF key, both needed by these
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
WITH_SOFTCAPS = ("gemma2",)
ALWAYS_TIED = ("gemma2",)
# Gemma's largest models, which llama.cpp knows by their layers, scale scores by the stream's width per head.
SCALED_BY_STREAM = {"gemma2": 46, "gemma3": 62}


def family_metadata(config: ModelConfig) -> dict[str, int | float]:
    """Keys after "ARCH." beyond those of every model. raises  InputError for parts that llama.cpp computes in another
    way
    """
    architecture, arch = config.architecture, config.architecture.gguf_arch
    usual = activation_of(architecture.canonical({}))
    _refuse(config.activation != usual, f"the activation is {config.activation}", arch, usual)
    scale = _scale(arch, config.num_layers, config.hidden_size, config.num_heads, config.head_dim)
    own_scale = config.attention_rule(0).scale
    _refuse(abs(own_scale / scale - 1) > 1e-6, f"scores are scaled by {own_scale:.6g}", arch, f"{scale:.6g}")
    _refuse(config.has_head and arch in ALWAYS_TIED, "the head has a weight of its own", arch, "the embedding's")
    metadata: dict[str, int | float] = {}
    softcaps = (config.attention_softcap, config.logit_softcap)
    if arch in WITH_SOFTCAPS:
        _refuse(not all(softcaps), "scores or logits are not capped", arch, "caps on both")
        metadata |= dict(zip(SOFTCAPS.values(), softcaps, strict=True))
    else:
        _refuse(any(softcaps), "scores or logits are capped", arch, "no caps")
    if config.windows:
        metadata[WINDOW] = _window(config)
    if config.local_rope is not None:
        _refuse(config.local_rope.rope_type != "default", "the local rotation is scaled", arch, "it unscaled")
        metadata[LOCAL_THETA] = config.local_rope.theta
    return metadata


def family_config(architecture: Architecture, reader: KeyReader) -> dict[str, int | float]:
    """The usual keys of a config.json for the GGUF keys that `family_metadata` wrote."""
    arch = architecture.gguf_arch
    found: dict[str, int | float] = {}
    if arch in WITH_WINDOWS and (window := reader.get(WINDOW, int)):
        found["sliding_window"] = window
    if arch in WITH_SOFTCAPS:
        found |= {name: cap for name, key in SOFTCAPS.items() if (cap := reader.get(key, float))}
    if architecture.local_theta is not None:
        found["rope_local_base_freq"] = reader.get(LOCAL_THETA, float) or architecture.local_theta
    if arch in SCALED_BY_STREAM:
        head_dim = next((dim for key in HEAD_DIM_KEYS if (dim := reader.get(key, int))), None)
        num_layers, hidden_size = reader.require("block_count", int), reader.require("embedding_length", int)
        num_heads = reader.require("attention.head_count", int)
        head_dim = head_dim or reader.require(HEAD_DIM_KEYS[0], int)
        found["query_pre_attn_scalar"] = round(_scale(arch, num_layers, hidden_size, num_heads, head_dim) ** -2)
    return found


def _scale(arch: str | None, num_layers: int, hidden_size: int, num_heads: int, head_dim: int) -> float:
    """The factor of scores in llama.cpp."""
    by_stream = SCALED_BY_STREAM.get(arch or "") == num_layers
    return (hidden_size // num_heads if by_stream else head_dim) ** -0.5


def _window(config: ModelConfig) -> int:
    """raises InputError where GGUF has no word for which layers have a window"""
    architecture, window = config.architecture, max(config.windows)
    named = architecture.canonical({"sliding_window": window})
    if (
        architecture.gguf_arch not in WITH_WINDOWS
        or window_of_layers(named, architecture.windows, config.num_layers) != config.windows
    ):
        raise InputError(
            f"some layers attend to a window of {window} tokens, which GGUF cannot say of {architecture.gguf_arch} and "
            "these layers; write a Hugging Face directory"
        )
    return window


def _refuse(differs: bool, what: str, arch: str | None, known: str) -> None:
    if differs:
        raise InputError(f"{what}, and llama.cpp knows {arch} with {known} alone; write a Hugging Face directory")
