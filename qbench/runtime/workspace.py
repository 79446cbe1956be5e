"""Memory of a forward pass besides weights and KV cache: the activations that are alive at once."""

import importlib
from types import ModuleType

from qbench.run.choices import TEXTBOOK
from qbench.runtime.attention.mla_modes import choose_mode
from qbench.runtime.layers.latent import LATENT_TOKENS
from qbench.runtime.layers.paths import LAYERS, NET_STEPS, PYTHON, STEPS, LayerPath
from quant.models import ModelConfig
from quant.present import present

FLOAT_BYTES = 4
MAPPED_BYTES = 32 << 20  # glibc maps blocks of this size and more by themselves, and gives them back when they are free


def workspace_bytes(
    config: ModelConfig,
    num_tokens: int,
    batch: int = 1,
    *,
    path: LayerPath = PYTHON,
    over_latents: bool = True,
    has_sinks: bool = False,
) -> int:
    """Peak of live activations in a forward pass of `num_tokens` per sequence that computes the last logits alone.

    Experts that run one by one count as if one expert read every token, the worst that a router can do.
    path         the code that runs the layers, see `planned_path`
    has_sinks    whether queries are rotated a second time, for the keys of sinks
    over_latents of latent attention, whether the cache keeps latents, so that sequences pass in turns
    """
    rows = num_tokens * batch
    if path is LAYERS:
        layers = _one_call(config, rows, has_sinks)
    elif path is STEPS:
        layers = _steps(config, rows)
    elif path is NET_STEPS and config.mla and over_latents and absorbs(config, num_tokens):
        layers = _absorbed_layers(config, rows)
    elif path is NET_STEPS and config.mla and over_latents:
        layers = _latent_steps(config, rows, _tokens_in_turn(num_tokens, batch))
    else:
        layers = _chain(config, rows, _tokens_in_turn(num_tokens, batch) if over_latents else rows)
    logits = batch * config.vocab_size
    rope = num_tokens * 2 * config.rope_dim  # cos and sin, shared by the batch
    return FLOAT_BYTES * (layers + logits + rope)


def torch_attention_bytes(config: ModelConfig, num_tokens: int, num_keys: int, attention: str) -> int:
    """Bytes of one sequence, in addition to `workspace_bytes`, by one of `attention_choice.IN_TORCH`.

    textbook  scores of all heads before and after the softmax, small ones twice, because the heap keeps free blocks;
              and the mask as bytes, twice
    sdpa      the mask as bytes and as floats, unless all queries and keys are of one forward pass
    both      the keys and values as attention reads them, decoded
    """
    pairs = num_tokens * num_keys
    decoded = FLOAT_BYTES * 2 * num_keys * config.kv_size
    if attention == TEXTBOOK:
        scores = FLOAT_BYTES * config.num_heads * pairs
        return decoded + scores * (2 if scores >= MAPPED_BYTES else 4) + 2 * pairs
    return decoded + (pairs * (1 + FLOAT_BYTES) if 1 < num_tokens < num_keys else 0)


def _tokens_in_turn(num_tokens: int, batch: int) -> int:
    """Tokens of the largest turn that LatentAttention takes."""
    turns = -(-batch // max(1, LATENT_TOKENS // num_tokens))
    return -(-batch // turns) * num_tokens


def _chain(config: ModelConfig, rows: int, in_turn: int) -> int:
    """Floats of the largest step."""
    if config.mla:
        attention = 2 * config.hidden_size * rows + in_turn * _latent_turn(config)
    else:
        attention = rows * _attention(config)
    return max(attention, *(rows * _FEED_FORWARD[kind](config) for kind in _kinds(config)))


def _steps(config: ModelConfig, rows: int) -> int:
    """Floats of all rows of the largest step."""
    return max(rows * _attention(config), _kernel_nets(config, rows))


def _latent_steps(config: ModelConfig, rows: int, in_turn: int) -> int:
    """The same of latent attention in turns.

    A turn's blocks, one or two megabytes each, stay in the heap next to those of the nets, with gaps of as much again.
    """
    return max(2 * config.hidden_size * rows, _kernel_nets(config, rows)) + 2 * in_turn * _latent_turn(config)


def absorbs(config: ModelConfig, num_tokens: int) -> bool:
    """Whether every layer takes so many new tokens per sequence by absorbed attention, so that all are one call."""
    rules = {config.attention_rule(layer) for layer in range(config.num_layers)}
    if len(rules) > 1 or config.local_rope is not None:
        return False
    (rule,) = rules
    return choose_mode(present(config.mla), config.num_heads, num_tokens, num_tokens, rule.window).absorbs


def _absorbed_layers(config: ModelConfig, rows: int) -> int:
    """Floats of latent attention and nets as one call: csrc/mla/layers/layers.cpp.

    Input and output of the call and the stream twice; then the scratch of attention (projected and raised queries, the
    latent, the attention's output) and of the net. Either scratch stays allocated unless it is large.
    """
    mla, stream = present(config.mla), config.hidden_size * rows
    raised = config.q_size if mla.q_lora_rank else 0
    attention = rows * (
        (mla.q_lora_rank or config.q_size) + raised + mla.latent_size + config.num_heads * mla.v_head_dim
    )
    net = _kernel_nets(config, rows) - 3 * stream
    angles = rows * config.rope_dim  # cos and sin of every token
    if (
        attention + rows * (config.q_size - raised)
    ) * FLOAT_BYTES <= _kernels().MOST_KEPT_BYTES:  # q_size is reserved in any case
        return angles + 4 * stream + attention + net
    return angles + max(3 * stream + attention, 4 * stream) + net


def _one_call(config: ModelConfig, rows: int, has_sinks: bool) -> int:
    """Floats: the input, and the stream twice; q as projected and as rotated once or twice, k and v; a net.

    The last two stay allocated from layer to layer unless they are large.
    """
    attention = rows * ((3 if has_sinks else 2) * config.q_size + 2 * config.kv_size)
    steps = (attention, _net(config.ffn_size, rows))
    kept = [floats for floats in steps if floats * FLOAT_BYTES <= _kernels().MOST_KEPT_BYTES]
    freed = [floats for floats in steps if floats not in kept]
    return 3 * rows * config.hidden_size + sum(kept) + max(freed, default=0)


def _kernel_nets(config: ModelConfig, rows: int) -> int:
    """Floats of the larger kind of net."""
    return max(_KERNEL_FEED_FORWARD[kind](config, rows) for kind in _kinds(config))


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
    moe = present(config.moe)
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
    """Floats a token of a turn: the projection of x, and q if that is another; the projection of latents; joined
    queries, keys, outputs as wide as those, and values padded to that
    """
    mla = present(config.mla)
    queries = (mla.q_lora_rank or 0) + config.q_size
    widened = 4 if mla.v_head_dim < mla.qk_head_dim else 3
    return queries + mla.latent_size + config.kv_b_size + widened * config.q_size


def _dense(config: ModelConfig) -> int:
    """Floats a token: block's input, stream; gate and up; silu and its product"""
    return 2 * config.hidden_size + 4 * config.ffn_size


def _experts(config: ModelConfig) -> int:
    """Floats a token: block's input, stream, norm, sum; scores; choices; an expert's own input and insides."""
    moe = present(config.moe)
    choices = 8 * moe.num_experts_per_token  # weights and as sorted, float32; experts, order and tokens, int64
    routed = config.hidden_size + 4 * moe.expert_ffn_size
    return 4 * config.hidden_size + moe.num_experts + choices + max(routed, 4 * moe.shared_ffn_size)


_FEED_FORWARD = {"dense": _dense, "moe": _experts}
_KERNEL_FEED_FORWARD = {"dense": _kernel_dense, "moe": _kernel_experts}
