"""ModelConfig: the shape and constants of a decoder. Every quirk of Hugging Face configs ends here."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from quant.errors import InputError, shown
from quant.models.architecture import Architecture
from quant.models.architectures import ARCHITECTURES
from quant.models.attention import AttentionRule, window_of_layers
from quant.models.encoder_decoder import ENCODER_DECODERS
from quant.models.mla import MlaConfig
from quant.models.moe import MoeConfig
from quant.models.online import KEYS, online_rotations
from quant.models.rope import RopeConfig
from quant.models.values import MOST_LAYERS, activation_of, count, flag, number, token_ids
from quant.present import present
from quant.source import Source

# Experts of all layers together: each is three rows of the table of tensors, about 1 kB. The largest published
# models have 61 layers of 384.
MOST_EXPERTS_IN_ALL = 1 << 16


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The facts of a config.json, whatever the spelling there. Sizes in weights, counts in things."""

    architecture: Architecture
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    max_positions: int
    norm_eps: float
    rope: RopeConfig
    tie_word_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    eos_token_ids: tuple[int, ...]
    moe: MoeConfig | None = None
    mla: MlaConfig | None = None
    activation: str = "silu"  # of the feed-forward nets, a value of activations.ACTIVATIONS
    windows: tuple[int, ...] = ()  # of each layer, the keys that a query sees, 0 for all; (): all
    local_rope: RopeConfig | None = None  # of the layers with a window, if they have one of their own
    softmax_scale: float | None = None  # None: 1 / sqrt(head_dim)
    attention_softcap: float = 0.0  # 0: no cap
    logit_softcap: float = 0.0
    online: frozenset[str] = frozenset()  # rotations that run with the model, places of online.PLACES

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise InputError(
                f"num_attention_heads is {self.num_heads}, "
                f"expected a multiple of num_key_value_heads {self.num_kv_heads}"
            )
        if self.mla and self.num_kv_heads != self.num_heads:
            raise InputError(
                f"num_key_value_heads is {self.num_kv_heads}, expected num_attention_heads, {self.num_heads}: latent "
                "attention gives every head its own keys"
            )
        if self.mla and self.mla.v_head_dim > self.head_dim:
            raise InputError(
                f"v_head_dim is {self.mla.v_head_dim}, expected at most the width of a key, {self.head_dim}"
            )
        if self.mla and KEYS in self.online:
            raise InputError(
                f"{self.architecture.name} keeps one latent for all heads, so its keys cannot be rotated head by head; "
                "leave the KV format away"
            )
        if self.has_rope and (self.rope_dim < 2 or self.rope_dim % 2):
            raise InputError(f"head_dim is {self.head_dim}, expected an even number (rotary pairs)")
        for factors in (self.rope.short_factor, self.rope.long_factor):
            if factors and len(factors) != self.rope_dim // 2:
                raise InputError(f"rope has {len(factors)} factors, expected {self.rope_dim // 2}, one a rotary pair")
        if self.moe and self.num_layers * self.moe.num_experts > MOST_EXPERTS_IN_ALL:
            raise InputError(
                f"{self.num_layers} layers of {self.moe.num_experts} experts, expected at most {MOST_EXPERTS_IN_ALL} "
                "experts in all layers together"
            )
        if not self.norm_eps < 1:
            raise InputError(f"rms_norm_eps is {self.norm_eps}, expected a number between 0 and 1")

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim

    @property
    def value_dim(self) -> int:
        """Width of a head's value."""
        return self.mla.v_head_dim if self.mla else self.head_dim

    @property
    def attention_out_size(self) -> int:
        """Width of the input of the attention's output projection."""
        return self.num_heads * self.value_dim

    @property
    def kv_b_size(self) -> int:
        """Rows of MLA's projection from the latent to every head's unrotated key and value."""
        mla = present(self.mla)
        return self.num_heads * (mla.qk_nope_head_dim + mla.v_head_dim)

    @property
    def rope_dim(self) -> int:
        """Entries of a head that are rotated, the first ones."""
        return self.mla.qk_rope_head_dim if self.mla else int(self.head_dim * self.rope.rotated_share)

    @property
    def has_rope(self) -> bool:
        return self.architecture.positions == "rope"

    @property
    def num_position_rows(self) -> int:
        """Rows of the table of learned positions."""
        return self.max_positions + self.architecture.position_offset

    @property
    def embedding_scale(self) -> float:
        return self.hidden_size**0.5 if self.architecture.scaled_embedding else 1.0

    @property
    def has_head(self) -> bool:
        """Whether the output head has a tensor of its own."""
        return not self.tie_word_embeddings

    @property
    def expert_share(self) -> float:
        """Share of a layer's routed experts that a token passes through."""
        return self.moe.num_experts_per_token / self.moe.num_experts if self.moe else 1.0

    def layer_kind(self, layer: int) -> str:
        """ "moe" for a layer of routed experts, "dense" for one of a plain feed-forward net"""
        return "moe" if self.moe and layer >= self.moe.num_dense_layers else "dense"

    def attention_rule(self, layer: int) -> AttentionRule:
        return AttentionRule(
            scale=self.head_dim**-0.5 if self.softmax_scale is None else self.softmax_scale,
            window=self.windows[layer] if self.windows else 0,
            softcap=self.attention_softcap,
            has_alibi=self.architecture.positions == "alibi",
        )

    def rope_of(self, layer: int) -> RopeConfig:
        has_window = self.windows and self.windows[layer] > 0
        return self.local_rope if self.local_rope is not None and has_window else self.rope

    @classmethod
    def of(cls, source: Source) -> "ModelConfig":
        return cls.from_hf(source.config, source.spec)

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], where: str = "config") -> "ModelConfig":
        """The config of a Hugging Face config.json mapping.

        where    beginning of errors: the file, or the model's spec
        raises   InputError for a missing or impossible value and for maths that is not supported
        """
        try:
            return cls._from_hf(config)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error

    @classmethod
    def _from_hf(cls, config: Mapping[str, Any]) -> "ModelConfig":
        architecture = _architecture(config)
        config = architecture.canonical(config)
        hidden_size = count(config, "hidden_size")
        if config.get("word_embed_proj_dim") not in (None, hidden_size):
            raise InputError(
                f"word_embed_proj_dim is {shown(config['word_embed_proj_dim'])}, expected hidden_size, {hidden_size}: "
                "projections between the embedding and the layers are not supported"
            )
        num_layers = count(config, "num_hidden_layers", most=MOST_LAYERS)
        num_heads = count(config, "num_attention_heads")
        mla = MlaConfig.from_hf(config) if architecture.has_mla else None
        experts = architecture.experts
        return cls(
            architecture=architecture,
            hidden_size=hidden_size,
            num_layers=num_layers,
            num_heads=num_heads,
            num_kv_heads=count(config, "num_key_value_heads", num_heads),
            head_dim=mla.qk_head_dim if mla else _head_dim(config, hidden_size, num_heads),
            ffn_size=count(config, "intermediate_size", (architecture.ffn_ratio or 0) * hidden_size or None),
            vocab_size=count(config, "vocab_size"),
            max_positions=count(config, "max_position_embeddings"),
            norm_eps=number(config, "rms_norm_eps"),
            rope=_rope(config, architecture),
            local_rope=RopeConfig.local_from_hf(config, architecture.local_theta),
            tie_word_embeddings=flag(config, "tie_word_embeddings"),
            attention_bias=flag(config, "attention_bias"),
            mlp_bias=flag(config, "mlp_bias"),
            eos_token_ids=token_ids(config, "eos_token_id"),
            moe=MoeConfig.from_hf(config, experts) if experts else None,
            mla=mla,
            activation=activation_of(config),
            softmax_scale=_softmax_scale(config),
            attention_softcap=_number_or_0(config, "attn_logit_softcapping"),
            logit_softcap=_number_or_0(config, "final_logit_softcapping"),
            windows=window_of_layers(config, architecture.windows, num_layers),
            online=online_rotations(config),
        )


def _architecture(config: Mapping[str, Any]) -> Architecture:
    known = ", ".join((*ARCHITECTURES, *ENCODER_DECODERS))
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"key 'architectures' is missing or no list of names; known: {known}")
    if names[0] in ENCODER_DECODERS:
        raise InputError(f"{names[0]} is an encoder-decoder, which `qbench generate` alone runs")
    if names[0] not in ARCHITECTURES:
        raise InputError(f"architecture {shown(names[0])} is unknown; known: {known}")
    architecture = ARCHITECTURES[names[0]]
    model_type = config.get("model_type")
    if model_type not in (None, architecture.model_type):
        raise InputError(f"model_type is {shown(model_type)}, expected {architecture.model_type!r} for {names[0]}")
    return architecture


def _rope(config: Mapping[str, Any], architecture: Architecture) -> RopeConfig:
    rope = RopeConfig.from_hf(config)
    if rope.rotated_share == 1 or architecture.partly_rotated:
        return rope
    logging.getLogger(__name__).warning(
        "partial_rotary_factor is %s, which %s does not have: heads are rotated whole, as in transformers",
        rope.rotated_share,
        architecture.name,
    )
    return replace(rope, rotated_share=1.0)


def _softmax_scale(config: Mapping[str, Any]) -> float | None:
    """Gemma's scale, which names the width in place of head_dim."""
    width = _number_or_0(config, "query_pre_attn_scalar")
    return width**-0.5 if width else None


def _number_or_0(config: Mapping[str, Any], key: str) -> float:
    return 0.0 if config.get(key) is None else number(config, key)


def _head_dim(config: Mapping[str, Any], hidden_size: int, num_heads: int) -> int:
    if config.get("head_dim") is None and hidden_size % num_heads:
        raise InputError(
            f"hidden_size is {hidden_size}, not a multiple of num_attention_heads {num_heads}; give head_dim in the "
            "config"
        )
    return count(config, "head_dim", hidden_size // num_heads)
