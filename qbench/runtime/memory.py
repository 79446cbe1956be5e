"""Memory a model will take, by part, from its config and tensor table alone."""

from typing import Any

from qbench.runtime.checkpoint import check_tensors
from qbench.runtime.kernel_cache import has_store, held_tokens
from qbench.runtime.linear import choose_linear
from quant.kv import KVScheme
from quant.models import EMBEDDING, ModelConfig, expected_tensors
from quant.source import Source

FLOAT_BYTES = 4  # activations, norms, biases and, unless the model names a format for them, keys and values


def predict_memory(source: Source, context: int, batch: int = 1, *, impl: str = "auto") -> dict[str, Any]:
    """Bytes by part for `batch` sequences of `context` tokens, each prefilled in one go.

    weights_bytes, weights_by_format  as stored
    resident_bytes                    weights as the runtime holds them: packed, or float32 on the reference path
    kv_bytes_per_token, kv_bytes      of one sequence; of the whole cache, in the model's KV format if it names one,
                                      else in float32
    workspace_bytes                   activations at their peak, and the last position's logits
    total_bytes                       resident_bytes + kv_bytes + workspace_bytes
    """
    config = ModelConfig.of(source)
    check_tensors(config, source.tensors)
    scheme = KVScheme.of(source.config, config, source.spec)
    kv_bytes = kv_bytes_per_token(config, scheme)
    in_kernels = impl != "reference" and has_store(config, scheme)
    weights_by_format: dict[str, int] = {}
    for info in source.tensors.values():
        weights_by_format[info.format] = weights_by_format.get(info.format, 0) + info.size_bytes
    parts = {
        "resident_bytes": resident_bytes(source, config, impl),
        "kv_bytes": round(batch * (held_tokens(context) if in_kernels else context) * kv_bytes),
        "workspace_bytes": workspace_bytes(config, context, batch),
    }
    return {
        "weights_bytes": sum(weights_by_format.values()),
        "weights_by_format": weights_by_format,
        "kv_bytes_per_token": kv_bytes,
        **parts,
        "total_bytes": sum(parts.values()),
    }


def resident_bytes(source: Source, config: ModelConfig, impl: str = "auto") -> int:
    """Weights in memory after load: an untied embedding as stored, linears as their implementation holds them."""
    total = 0
    for name in expected_tensors(config):
        info = source.tensors[name]
        if name == EMBEDDING and not config.tie_word_embeddings:  # a tied one is the head's weight
            total += info.size_bytes
        elif len(info.shape) == 1:
            total += FLOAT_BYTES * info.shape[0]
        else:
            total += choose_linear(info.format, impl).held_bytes(info.format, info.shape, info.size_bytes)
    return total


def kv_bytes_per_token(config: ModelConfig, scheme: KVScheme | None = None) -> float:
    """Keys and values of one token over all layers; scheme: their format, None: float32"""
    if scheme is None:
        return config.num_layers * 2 * config.kv_size * FLOAT_BYTES
    return config.num_layers * scheme.format.bytes_per_token(config.num_kv_heads, config.head_dim)


def workspace_bytes(config: ModelConfig, num_tokens: int, batch: int = 1) -> int:
    """Peak of live activations over a forward pass of `num_tokens` a sequence with the last logits alone.

    What the chain of torch operations holds; steps that kernels take together hold less, but for routed experts in one
    call: between their products lie 1024 tokens at most, 72 MB of them at 8 experts each, 2048 and 768 wide.
    Of experts, the worst that a router can do: one expert reads every token.
    """
    attention = _latent_attention(config) if config.mla else _attention(config)
    kinds = {config.layer_kind(layer) for layer in range(config.num_layers)}
    parts = [attention, *(_FEED_FORWARD[kind](config) for kind in kinds)]
    logits = config.vocab_size
    rope = 2 * config.rope_dim  # cos and sin, shared by the batch
    return FLOAT_BYTES * (batch * (num_tokens * max(parts) + logits) + num_tokens * rope)


def _attention(config: ModelConfig) -> int:
    """Floats a token: stream; q, k, v; a rotation's terms and sum"""
    return config.hidden_size + config.q_size + 2 * config.kv_size + 3 * config.q_size


def _latent_attention(config: ModelConfig) -> int:
    """Floats a token: stream; what x is projected to; q where that is another; q, k and v rotated, padded; out"""
    low_rank = config.mla.q_lora_rank
    down = (low_rank or config.q_size) + config.mla.latent_size
    return config.hidden_size + down + (config.q_size if low_rank else 0) + 4 * config.q_size


def _dense(config: ModelConfig) -> int:
    """Floats a token: block's input, stream; gate and up; silu and its product"""
    return 2 * config.hidden_size + 4 * config.ffn_size


def _experts(config: ModelConfig) -> int:
    """Floats a token: block's input, stream, norm, sum; scores; choices; an expert's own input and insides."""
    moe = config.moe
    choices = 8 * moe.num_experts_per_token  # weights and as sorted, float32; experts, order and tokens, int64
    routed = config.hidden_size + 4 * moe.expert_ffn_size
    return 4 * config.hidden_size + moe.num_experts + choices + max(routed, 4 * moe.shared_ffn_size)


_FEED_FORWARD = {"dense": _dense, "moe": _experts}
