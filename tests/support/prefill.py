"""Prompts, and the plain definition of attention over a mask, for tests of prefill patterns."""

import torch
from torch import Tensor

from qbench.prefill import BLOCK, Prompt


def prompt(num_tokens: int, heads: int = 4, kv_heads: int = 2, head_dim: int = 16, seed: int = 0) -> Prompt:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(n, num_tokens, head_dim, generator=generator) for n in (heads, kv_heads, kv_heads))
    return Prompt(q, k, v, head_dim**-0.5)


def peaked_prompt(num_tokens: int, heads: int = 4, kv_heads: int = 2, head_dim: int = 16, seed: int = 0) -> Prompt:
    """A prompt whose attention weights are large for few tokens, and each head has its own ones."""
    plain = prompt(num_tokens, heads, kv_heads, head_dim, seed)
    return Prompt(4 * plain.q, plain.keys, plain.values, plain.softmax_scale)


def attention_weights(given: Prompt, mask: Tensor) -> Tensor:
    """[H, T, T] float64; mask [1 or H, T, T]"""
    groups = given.q.shape[0] // given.keys.shape[0]
    keys = given.keys.double().repeat_interleave(groups, 0)
    scores = given.softmax_scale * given.q.double() @ keys.mT
    return scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0.0)


def masked_attention(given: Prompt, mask: Tensor) -> Tensor:
    """softmax(scores) v over the keys of a mask [1 or H, T, T], in float64: [H, T, D]"""
    groups = given.q.shape[0] // given.keys.shape[0]
    return attention_weights(given, mask) @ given.values.double().repeat_interleave(groups, 0)


def token_mask(blocks: Tensor, num_tokens: int, key_block: int = BLOCK) -> Tensor:
    """[L, T, T] bool of a mask [L, N, K] of blocks, causal"""
    tokens = blocks.repeat_interleave(BLOCK, 1).repeat_interleave(key_block, 2)
    return tokens[:, :num_tokens, :num_tokens].tril()


def rounding_bound(given: Prompt) -> float:
    """Error of float32 attention: a rounding per channel of a score and per token of a sum, six standard deviations."""
    steps = given.num_tokens + given.q.shape[-1]
    largest = float((given.q.norm(dim=-1).max() * given.keys.norm(dim=-1).max()) * given.softmax_scale)
    return 6 * 2**-24 * steps**0.5 * (1 + largest) * float(given.values.abs().max())
