"""Memory of a forward pass beside weights, keys and values: the activations that are alive at once."""

import importlib
from types import ModuleType

from qbench.runtime.layers.kernel_steps import has_attention_step, has_net_step
from qbench.runtime.layers.latent import LATENT_TOKENS
from quant.models import ModelConfig

FLOAT_BYTES = 4


def workspace_bytes(
    config: ModelConfig, num_tokens: int, batch: int = 1, *, in_kernels: bool = False, over_latents: bool = True
) -> int:
    """Peak of live activations over a forward pass of `num_tokens` a sequence with the last logits alone.

    Of experts, the worst that a router can do where each runs by itself: one expert reads every token.
    in_kernels   whether steps that follow each other are taken together: attention and net of a layer, all experts;
                 False: what the chain of torch operations holds
    over_latents of latent attention, whether the cache keeps latents, so that sequences pass in turns
    """
    in_turn = _tokens_in_turn(num_tokens, batch) if over_latents else num_tokens * batch
    layers = (_in_kernels if in_kernels else _chain)(config, num_tokens * batch, in_turn)
    logits = batch * config.vocab_size
    rope = num_tokens * 2 * config.rope_dim  # cos and sin, shared by the batch
    return FLOAT_BYTES * (layers + logits + rope)


def has_kernel_steps(config: ModelConfig) -> bool:
    """Whether cpu_kernels, where they run all linears, take both halves of a layer as steps of their own."""
    return (config.mla is not None or has_attention_step(config)) and has_net_step(config)


def in_one_call(config: ModelConfig) -> bool:
    """Whether cpu_kernels, where they run all linears, run all layers as one call."""
    rules = {config.attention_rule(layer) for layer in range(config.num_layers)}
    is_alike = len(rules) == 1 and config.local_rope is None
    return has_kernel_steps(config) and is_alike and not config.mla and not config.moe


def _tokens_in_turn(num_tokens: int, batch: int) -> int:
    """Of the largest turn that LatentAttention takes."""
    turns = -(-batch // max(1, LATENT_TOKENS // num_tokens))
    return -(-batch // turns) * num_tokens


def _chain(config: ModelConfig, rows: int, in_turn: int) -> int:
    """Floats of the largest step."""
    if config.mla:
        attention = 2 * config.hidden_size * rows + in_turn * _latent_turn(config)
    else:
        attention = rows * _attention(config)
    return max(attention, *(rows * _FEED_FORWARD[kind](config) for kind in _kinds(config)))


def _in_kernels(config: ModelConfig, rows: int, in_turn: int) -> int:
    """Floats of all rows of the largest step."""
    if not in_one_call(config):
        nets = max(_KERNEL_FEED_FORWARD[kind](config, rows) for kind in _kinds(config))
        if not config.mla:
            return max(rows * _attention(config), nets)
        # A turn's blocks, a megabyte or two each, stay in the heap beside the nets' with gaps of as much again.
        return max(2 * config.hidden_size * rows, nets) + 2 * in_turn * _latent_turn(config)
    # All layers in one call: its input, and the stream twice; q and k as projected and rotated, v, and what is
    # attended; a net. The last two stay allocated from layer to layer unless they are large.
    steps = (rows * 2 * (config.q_size + config.kv_size), _net(config.ffn_size, rows))
    kept = [floats for floats in steps if floats * FLOAT_BYTES <= _kernels().MOST_KEPT_BYTES]
    freed = [floats for floats in steps if floats not in kept]
    return 3 * rows * config.hidden_size + sum(kept) + max(freed, default=0)


def _kernels() -> ModuleType:
    """cpu_kernels, which says how many tokens it takes at a time and how many bytes it keeps."""
    return importlib.import_module("cpu_kernels")


def _net(ffn_size: int, rows: int) -> int:
    """Floats of gate and up."""
    return 2 * ffn_size * min(rows, _kernels().NET_TOKENS)


def _kernel_dense(config: ModelConfig, rows: int) -> int:
    """Floats: block's input, stream, output; gate and up"""
    return 3 * config.hidden_size * rows + _net(config.ffn_size, rows)


def _kernel_experts(config: ModelConfig, rows: int) -> int:
    """Floats: block's input, stream, sum; of some tokens at a time norm, scores, choices, every expert's insides, and
    both products' inputs in at most as many bytes as floats take.
    """
    moe = config.moe
    choices = 3 * moe.num_experts_per_token  # weights, float32, and experts, int64
    pairs = moe.num_experts_per_token + moe.num_shared_experts
    insides = 2 * config.hidden_size + moe.num_experts + choices + pairs * (config.hidden_size + moe.expert_ffn_size)
    return 3 * rows * config.hidden_size + min(rows, _kernels().EXPERT_TOKENS) * insides


def _kinds(config: ModelConfig) -> set[str]:
    return {config.layer_kind(layer) for layer in range(config.num_layers)}


def _attention(config: ModelConfig) -> int:
    """Floats a token: stream; q, k, v; a rotation's terms and sum"""
    return config.hidden_size + config.q_size + 2 * config.kv_size + 3 * config.q_size


def _latent_turn(config: ModelConfig) -> int:
    """Floats a token of a turn: what x is projected to, and q where that is another; what latents are projected to;
    queries as joined, keys, what is attended as wide as those, and values padded to that"""
    mla = config.mla
    queries = (mla.q_lora_rank or 0) + config.q_size
    widened = 4 if mla.v_head_dim < mla.qk_head_dim else 3
    return queries + mla.latent_size + config.kv_b_size + widened * config.q_size


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
_KERNEL_FEED_FORWARD = {"dense": _kernel_dense, "moe": _kernel_experts}
