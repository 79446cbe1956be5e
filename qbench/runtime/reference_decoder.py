"""A decoder of the Llama family, written as equations: token ids in, logits out. Start reading the runtime here.

Plain torch from top to bottom: no KV cache, no kernels, no fast path. It is slow on purpose. `model.py`,
`decoder_model.py` and `layers/` compute the same function with KV caches and kernels; their tests compare them with it.

    x      = embedding[tokens]
    x      = x + attention(rms_norm(x))        per layer
    x      = x + feed_forward(rms_norm(x))     per layer
    logits = head(rms_norm(x))

Letters of the shape comments
    B sequences   T tokens of each   V vocabulary   K hidden_size   F ffn_size
    H heads of queries   G heads of keys and values   D head_dim   R entries of a head that are rotated

source   Touvron et al. 2023, arXiv:2302.13971, section 2.2; Jiang et al. 2023, arXiv:2310.06825, section 2 (window);
         Yang et al. 2024, arXiv:2407.10671, section 2.2.1 (QKV biases); Yang et al. 2025, arXiv:2505.09388 (QK norm)
"""

import numpy as np
import torch
from torch import Tensor

from quant.errors import InputError
from quant.formats import ActivationFormat, dequantize, get_format
from quant.models import EMBEDDING, FINAL_NORM, HEAD, ModelConfig, RopeConfig, expected_tensors
from quant.models.online import DOWN_PROJ, KEYS
from quant.source import Source
from quant.turn import turn_of

FAMILIES = ("LlamaForCausalLM", "MistralForCausalLM", "Phi3ForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


class ReferenceDecoder:
    """Logits of every position, without a KV cache: a longer text is computed again from its first token.

    dtype    of weights and arithmetic, torch.float32 or torch.float64
    call     tokens [B, T] int64 -> logits [B, T, V] of `dtype`; a KV format that the source names is ignored
    raises   NotImplementedError for a family, an activation or a weight format that is not covered; InputError for a
             token id outside the vocabulary and for more tokens than the model's context
    """

    def __init__(self, source: Source, dtype: torch.dtype = torch.float64) -> None:
        self.config = ModelConfig.of(source)
        self.dtype = dtype
        check_covered(self.config)
        self.weights = {name: self._read(source, name) for name in expected_tensors(self.config)}

    @torch.inference_mode()
    def __call__(self, tokens: Tensor) -> Tensor:
        return self.logits(tokens)

    def logits(self, tokens: Tensor) -> Tensor:
        """The call, with gradients if a subclass needs them."""
        check_tokens(tokens, self.config)
        positions = torch.arange(tokens.shape[1])  # [T]
        cos, sin = rotation(self.config.rope, self.config.rope_dim, positions, self.dtype)  # [T, R]
        x = self.weights[EMBEDDING][tokens]  # [B, T, K]
        for layer in range(self.config.num_layers):
            prefix = f"model.layers.{layer}"
            visible = self.visible(layer, positions)  # [T, T]
            h = self.rms_norm(x, f"{prefix}.input_layernorm")
            x = x + self.attention(h, layer, cos, sin, visible)
            h = self.rms_norm(x, f"{prefix}.post_attention_layernorm")
            x = x + self.feed_forward(h, f"{prefix}.mlp")
        x = self.rms_norm(x, FINAL_NORM.removesuffix(".weight"))
        head = self.weights[HEAD if self.config.has_head else EMBEDDING]  # a tied head is the embedding
        return x @ head.T  # [B, T, V]

    def attention(self, x: Tensor, layer: int, cos: Tensor, sin: Tensor, visible: Tensor) -> Tensor:
        """softmax(q k^T / sqrt(D)) v for each head; x [B, T, K] -> [B, T, K]"""
        prefix = f"model.layers.{layer}.self_attn"
        q = self.heads(self.linear(x, f"{prefix}.q_proj"))  # [B, H, T, D]
        k = self.heads(self.linear(x, f"{prefix}.k_proj"))  # [B, G, T, D]
        v = self.heads(self.linear(x, f"{prefix}.v_proj"))  # [B, G, T, D]
        if f"{prefix}.q_norm.weight" in self.weights:
            q, k = self.rms_norm(q, f"{prefix}.q_norm"), self.rms_norm(k, f"{prefix}.k_norm")
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if KEYS in self.config.online:
            q, k = self.turned(q), self.turned(k)
        k, v = self.kept(layer, k, v)
        group = q.shape[1] // k.shape[1]  # H / G query heads read the same keys and values
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)  # [B, H, T, D]
        scores = q @ k.transpose(-1, -2) / self.config.head_dim**0.5  # [B, H, T, T]
        weights = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)  # [B, H, T, T]
        out = (weights @ v).transpose(1, 2).flatten(2)  # [B, T, H D]
        return self.linear(out, f"{prefix}.o_proj")

    def feed_forward(self, x: Tensor, prefix: str) -> Tensor:
        """SwiGLU; x [B, T, K] -> [B, T, K]. source  Shazeer 2020, arXiv:2002.05202, eq. 6"""
        gate = self.linear(x, f"{prefix}.gate_proj")  # [B, T, F]
        up = self.linear(x, f"{prefix}.up_proj")  # [B, T, F]
        inner = gate * torch.sigmoid(gate) * up
        return self.linear(self.turned(inner) if DOWN_PROJ in self.config.online else inner, f"{prefix}.down_proj")

    def rms_norm(self, x: Tensor, name: str) -> Tensor:
        """source  Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4"""
        mean_square = x.square().mean(dim=-1, keepdim=True)
        return x / (mean_square + self.config.norm_eps).sqrt() * self.weights[f"{name}.weight"]

    def linear(self, x: Tensor, name: str) -> Tensor:
        """x [..., K] -> [..., N]"""
        y = x @ self.weights[f"{name}.weight"].T
        return y + self.weights[f"{name}.bias"] if f"{name}.bias" in self.weights else y

    def turned(self, x: Tensor) -> Tensor:
        """An online rotation: x [..., K] times the matrix of its size."""
        return x @ torch.from_numpy(turn_of(x.shape[-1]).apply(np.eye(x.shape[-1]))).to(self.dtype)

    def kept(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values as queries read them: here as they were computed."""
        return k, v

    def heads(self, x: Tensor) -> Tensor:
        """[B, T, H D] -> [B, H, T, D]"""
        return x.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)

    def visible(self, layer: int, positions: Tensor) -> Tensor:
        """[T, T] bool: a query sees its own token and those before it; with a window of w only the last w of them."""
        distance = positions[:, None] - positions[None, :]  # [T, T]: of the query from the key
        window = self.config.attention_rule(layer).window or len(positions)
        return (distance >= 0) & (distance < window)

    def _read(self, source: Source, name: str) -> Tensor:
        qtensor = source.read(name)
        if isinstance(get_format(qtensor.format), ActivationFormat):
            raise NotImplementedError(
                f"{name} is {qtensor.format}, which rounds activations too; the reference decoder covers formats of "
                "weights alone"
            )
        return torch.from_numpy(dequantize(qtensor)).to(self.dtype)


def rotation(rope: RopeConfig, rope_dim: int, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of the angles position * theta^(-2 i / R) / divisor_i; the divisors are the model's RoPE scaling.

    returns  cos [T, R], sin [T, R]; entries i and i + R / 2 belong to pair i and have the same angle
    source   Su et al. 2021, arXiv:2104.09864, section 3.2.2
    """
    is_long = rope.changes_at is not None and len(positions) > rope.changes_at
    divisors = torch.from_numpy(rope.frequency_divisors(rope_dim, is_long=is_long)).to(dtype)  # [R / 2]
    frequencies = rope.theta ** (-torch.arange(0, rope_dim, 2, dtype=dtype) / rope_dim) / divisors  # [R / 2]
    angles = torch.outer(positions.to(dtype), frequencies).repeat(1, 2)  # [T, R]
    return angles.cos() * rope.rotation_scale, angles.sin() * rope.rotation_scale


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (a, b) of a head to (a cos - b sin, b cos + a sin); entries after the first R stay.

    x        [B, H, T, D]
    """
    turned, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]  # [B, H, T, R], [B, H, T, D - R]
    a, b = turned.chunk(2, dim=-1)  # [B, H, T, R / 2]
    return torch.cat((turned * cos + torch.cat((-b, a), dim=-1) * sin, rest), dim=-1)


def check_covered(config: ModelConfig) -> None:
    """raises  NotImplementedError for a model whose equations are not in this file"""
    name = config.architecture.name
    if name not in FAMILIES:
        raise NotImplementedError(f"the reference decoder covers {', '.join(FAMILIES)}; got {name}")
    if config.activation != "silu":
        raise NotImplementedError(f"the reference decoder covers the activation silu; got {config.activation}")
    rules = [config.attention_rule(layer) for layer in range(config.num_layers)]
    if any(rule.scale != config.head_dim**-0.5 or rule.softcap for rule in rules) or config.logit_softcap:
        raise NotImplementedError("the reference decoder covers scores of scale 1 / sqrt(head_dim) without soft caps")


def check_tokens(tokens: Tensor, config: ModelConfig) -> None:
    """raises  InputError for tokens that the model cannot read"""
    if tokens.ndim != 2 or not tokens.numel():
        raise InputError(f"tokens of shape {list(tokens.shape)}, expected [batch, at least 1 token]")
    if tokens.min() < 0 or tokens.max() >= config.vocab_size:
        got = f"from {tokens.min()} to {tokens.max()}"
        raise InputError(f"token ids {got}, expected 0 to {config.vocab_size - 1}")
    if tokens.shape[1] > config.max_positions:
        raise InputError(f"{tokens.shape[1]} tokens, but the model's context holds {config.max_positions}")
