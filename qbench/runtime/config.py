"""ModelConfig: what the decoder needs to know of a model. Every quirk of Hugging Face configs ends here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quant.errors import InputError

# model_type -> its class name, which stands in `architectures` where model_type is missing
ARCHITECTURES = {"llama": "LlamaForCausalLM"}

# rope_type -> the parameters it takes
ROPE_TYPES = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}

DEFAULT_THETA = 10000.0  # of the RoPE paper, where a config names none


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding: base wavelength and how positions past the trained context are scaled."""

    rope_type: str = "default"  # a key of ROPE_TYPES
    theta: float = DEFAULT_THETA
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192

    def __post_init__(self) -> None:
        for name in ("theta", "factor", "low_freq_factor", "original_max_position_embeddings"):
            if not getattr(self, name) > 0:
                raise InputError(f"rope {name} is {getattr(self, name)}, expected a number above 0")
        if not self.high_freq_factor > self.low_freq_factor:
            raise InputError(
                f"rope high_freq_factor is {self.high_freq_factor}, expected more than low_freq_factor "
                f"{self.low_freq_factor}"
            )


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a decoder-only model of the Llama family."""

    architecture: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    max_positions: int
    rms_norm_eps: float
    rope: RopeConfig
    tie_word_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    eos_token_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise InputError(
                f"num_attention_heads is {self.num_heads}, "
                f"expected a multiple of num_key_value_heads {self.num_kv_heads}"
            )
        if self.head_dim % 2:
            raise InputError(f"head_dim is {self.head_dim}, expected an even number (rotary pairs)")

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> "ModelConfig":
        """The config of a Hugging Face config.json mapping.

        raises   InputError for a missing or impossible value,
                 NotImplementedError for an architecture, activation or rope type that is not supported
        """
        architecture = _architecture(config)
        _require_supported(config, "hidden_act", "silu", ("silu", "swish"))
        hidden_size = _count(config, "hidden_size")
        num_heads = _count(config, "num_attention_heads")
        return cls(
            architecture=architecture,
            hidden_size=hidden_size,
            num_layers=_count(config, "num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=_count(config, "num_key_value_heads", num_heads),
            head_dim=_head_dim(config, hidden_size, num_heads),
            ffn_size=_count(config, "intermediate_size"),
            vocab_size=_count(config, "vocab_size"),
            max_positions=_count(config, "max_position_embeddings"),
            rms_norm_eps=_number(config, "rms_norm_eps"),
            rope=_rope(config),
            tie_word_embeddings=_flag(config, "tie_word_embeddings"),
            attention_bias=_flag(config, "attention_bias"),
            mlp_bias=_flag(config, "mlp_bias"),
            eos_token_ids=_token_ids(config, "eos_token_id"),
        )


def _architecture(config: Mapping[str, Any]) -> str:
    model_type = config.get("model_type")
    if model_type is None:
        class_names = config.get("architectures") or [None]
        known = {class_name: name for name, class_name in ARCHITECTURES.items()}
        model_type = known.get(class_names[0], class_names[0])
    if model_type is None:
        raise InputError("the config has no model_type, expected one of " + ", ".join(ARCHITECTURES))
    if model_type not in ARCHITECTURES:
        raise NotImplementedError(f"architecture {model_type!r} is not supported; known: {', '.join(ARCHITECTURES)}")
    return model_type


def _head_dim(config: Mapping[str, Any], hidden_size: int, num_heads: int) -> int:
    if config.get("head_dim") is not None:
        return _count(config, "head_dim")
    if hidden_size % num_heads:
        raise InputError(
            f"hidden_size is {hidden_size}, no multiple of num_attention_heads {num_heads}; give head_dim in the config"
        )
    return hidden_size // num_heads


def _rope(config: Mapping[str, Any]) -> RopeConfig:
    """`rope_parameters` holds theta too; the older `rope_scaling` leaves it to the top-level `rope_theta`."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(given, Mapping):
        raise InputError(f"rope_parameters is {given!r}, expected a mapping with rope_type")
    theta_holder = given if given.get("rope_theta") is not None else config
    theta = _number(theta_holder, "rope_theta", DEFAULT_THETA)
    rope_type = given.get("rope_type", given.get("type", "default"))
    if rope_type not in ROPE_TYPES:
        raise NotImplementedError(f"rope_type {rope_type!r} is not supported; known: {', '.join(ROPE_TYPES)}")
    if _number(given, "partial_rotary_factor", 1.0) != 1.0:
        raise NotImplementedError("partial_rotary_factor other than 1 is not supported for llama")
    parameters = {name: _number(given, name) for name in ROPE_TYPES[rope_type]}
    return RopeConfig(rope_type, theta, **parameters)


def _require_supported(config: Mapping[str, Any], key: str, default: str, supported: tuple[str, ...]) -> None:
    value = config.get(key, default)
    if value not in supported:
        raise NotImplementedError(f"{key} {value!r} is not supported; known: {', '.join(supported)}")


def _value(config: Mapping[str, Any], key: str, default: Any = None) -> Any:
    value = config.get(key)
    if value is None:
        value = default
    if value is None:
        raise InputError(f"the config has no {key}, which every llama model needs")
    return value


def _count(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = _value(config, key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{key} is {value!r}, expected a whole number of at least 1")
    return value


def _number(config: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = _value(config, key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise InputError(f"{key} is {value!r}, expected a number above 0")
    return float(value)


def _flag(config: Mapping[str, Any], key: str) -> bool:
    value = _value(config, key, False)
    if not isinstance(value, bool):
        raise InputError(f"{key} is {value!r}, expected true or false")
    return value


def _token_ids(config: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """Zero, one or several ids: null, 2 and [128001, 128009] all occur."""
    value = config.get(key)
    ids = [] if value is None else value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
        raise InputError(f"{key} is {value!r}, expected a token id or a list of them")
    return tuple(ids)
