"""Encoder-decoders of the T5 family: their config, and the tensors that follow from it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from quant.errors import InputError, shown
from quant.models.attention import AttentionRule
from quant.models.values import MOST_LAYERS, Config, count, number, token_ids
from quant.source import Source

ENCODER_DECODERS = ("T5ForConditionalGeneration", "MT5ForConditionalGeneration")
SHARED, ENCODER_NORM, DECODER_NORM = "shared", "encoder.final_layer_norm", "decoder.final_layer_norm"
BIAS = "{}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"  # of "encoder" or "decoder", for all layers
HEAD = "lm_head"
# feed_forward_proj -> its function, and whether a second projection is multiplied by it. "gated-gelu" means the
# approximation by tanh, as the models of T5 1.1 were trained.
FEED_FORWARDS = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gated-gelu": ("gelu_tanh", True),
    "gated-silu": ("silu", True),
}
# Further tensors that checkpoints may hold: the table once more, and a bias that cross-attention never used.
LEFTOVERS = (
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
)
# Relative positions have no end, so the config names no limit; a cache doubles its memory up to here.
MAX_POSITIONS = 1 << 20


@dataclass(frozen=True, slots=True)
class EncoderDecoderConfig:
    """Sizes in weights, counts in things; `num_layers` are the decoder's, as its cache counts them.

    activation, is_gated       of the feed-forward nets, see FEED_FORWARDS
    num_buckets, max_distance  of relative positions: the number of buckets, and the beginning of the last one
    start_token_id             first input of the decoder
    source                     Raffel et al. 2019, arXiv:1910.10683, section 2.1; Shazeer 2020, arXiv:2002.05202
    """

    hidden_size: int
    head_dim: int
    num_heads: int
    ffn_size: int
    num_encoder_layers: int
    num_layers: int
    vocab_size: int
    norm_eps: float
    activation: str
    is_gated: bool
    num_buckets: int
    max_distance: int
    tie_word_embeddings: bool
    start_token_id: int
    eos_token_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        # The encoder has half of the buckets for each direction, and half of those for distances one by one.
        if self.num_buckets < 4 or self.max_distance <= self.num_buckets // 2:
            raise InputError(
                f"relative_attention_num_buckets is {self.num_buckets} and relative_attention_max_distance "
                f"{self.max_distance}, expected at least 4 and more than half of the buckets"
            )
        for token in (self.start_token_id, *self.eos_token_ids):
            if not 0 <= token < self.vocab_size:
                raise InputError(f"token id {token} is outside the vocabulary of {self.vocab_size}")

    max_positions = MAX_POSITIONS

    @property
    def num_kv_heads(self) -> int:
        return self.num_heads

    @property
    def value_dim(self) -> int:
        return self.head_dim

    @property
    def inner_size(self) -> int:
        """Width of all heads of an attention together."""
        return self.num_heads * self.head_dim

    @property
    def logit_scale(self) -> float:
        """A tied table serves as a head on hidden states divided by sqrt(hidden_size)."""
        return self.hidden_size**-0.5 if self.tie_word_embeddings else 1.0

    def attention_rule(self, layer: int) -> AttentionRule:
        """Scores are not scaled: the initial weights were."""
        return AttentionRule(scale=1.0)

    @classmethod
    def of(cls, source: Source) -> "EncoderDecoderConfig":
        return cls.from_hf(source.config, source.spec)

    @classmethod
    def from_hf(cls, config: Config, where: str = "config") -> "EncoderDecoderConfig":
        """raises InputError, which begins with `where`, for a missing or impossible value"""
        try:
            return cls._from_hf(config)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error

    @classmethod
    def _from_hf(cls, config: Config) -> "EncoderDecoderConfig":
        kind = config.get("feed_forward_proj") or "relu"
        if not isinstance(kind, str) or kind not in FEED_FORWARDS:
            raise InputError(f"feed_forward_proj {shown(kind)} is not supported; known: {', '.join(FEED_FORWARDS)}")
        activation, is_gated = FEED_FORWARDS[kind]
        num_encoder_layers = count(config, "num_layers", most=MOST_LAYERS)
        tied = config.get("tie_word_embeddings")  # tied unless the config says otherwise
        if tied not in (None, True, False):
            raise InputError(f"tie_word_embeddings is {shown(tied)}, expected true or false")
        return cls(
            hidden_size=count(config, "d_model"),
            head_dim=count(config, "d_kv"),
            num_heads=count(config, "num_heads"),
            ffn_size=count(config, "d_ff"),
            num_encoder_layers=num_encoder_layers,
            num_layers=count(config, "num_decoder_layers", num_encoder_layers, most=MOST_LAYERS),
            vocab_size=count(config, "vocab_size"),
            norm_eps=number(config, "layer_norm_epsilon", 1e-6),
            activation=activation,
            is_gated=is_gated,
            num_buckets=count(config, "relative_attention_num_buckets", 32),
            max_distance=count(config, "relative_attention_max_distance", 128),
            tie_word_embeddings=tied is not False,
            start_token_id=count(config, "decoder_start_token_id", count(config, "pad_token_id", 0, least=0), least=0),
            eos_token_ids=token_ids(config, "eos_token_id"),
        )


def is_encoder_decoder(config: Mapping[str, Any]) -> bool:
    names = config.get("architectures")
    return isinstance(names, list) and bool(names) and names[0] in ENCODER_DECODERS


def encoder_decoder_tensors(config: EncoderDecoderConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor that the model must have."""
    hidden, inner = config.hidden_size, config.inner_size
    shapes: dict[str, tuple[int, ...]] = {f"{SHARED}.weight": (config.vocab_size, hidden)}
    stacks = (
        ("encoder", config.num_encoder_layers, ("SelfAttention",), ENCODER_NORM),
        ("decoder", config.num_layers, ("SelfAttention", "EncDecAttention"), DECODER_NORM),
    )
    for stack, num_layers, attentions, norm in stacks:
        shapes[BIAS.format(stack)] = (config.num_buckets, config.num_heads)
        for layer in range(num_layers):
            parts = [f"{stack}.block.{layer}.layer.{part}" for part in range(len(attentions) + 1)]
            for part, attention in zip(parts, attentions, strict=False):
                shapes |= {f"{part}.{attention}.{name}.weight": (inner, hidden) for name in "qkv"}
                shapes[f"{part}.{attention}.o.weight"] = (hidden, inner)
            shapes |= {f"{part}.layer_norm.weight": (hidden,) for part in parts}
            shapes |= {f"{parts[-1]}.{name}.weight": shape for name, shape in _net(config)}
        shapes[f"{norm}.weight"] = (hidden,)
    return shapes if config.tie_word_embeddings else shapes | {f"{HEAD}.weight": (config.vocab_size, hidden)}


def net_inputs(config: EncoderDecoderConfig) -> tuple[str, ...]:
    """The projections that a feed-forward net begins with; if there are two, the second is the gated one."""
    return ("DenseReluDense.wi_0", "DenseReluDense.wi_1") if config.is_gated else ("DenseReluDense.wi",)


def _net(config: EncoderDecoderConfig) -> Iterator[tuple[str, tuple[int, int]]]:
    yield from ((name, (config.ffn_size, config.hidden_size)) for name in net_inputs(config))
    yield "DenseReluDense.wo", (config.hidden_size, config.ffn_size)
