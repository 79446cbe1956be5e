"""Causal attention of whole sequences in bfloat16 products: for calibration, where many windows pass at once."""

import torch
from torch import Tensor

# Queries that share their keys: four of the usual 512-token windows, which leaves 5/8 of the square to compute.
QUERIES = 128


def causal_attention_bf16(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(D)) v, every operand rounded to bfloat16; no query sees a later token.

    q        [B, H, T, D] float32
    k, v     [B, G, T, D] float32, H a multiple of G
    returns  [B, H, T, D] float32
    """
    batch, num_heads, seq_len, head_dim = q.shape
    groups = (batch * k.shape[1], num_heads // k.shape[1])
    q = (q * head_dim**-0.5).bfloat16().reshape(*groups, seq_len, head_dim)  # [B G, H/G, T, D]
    k, v = k.bfloat16().flatten(0, 1), v.bfloat16().flatten(0, 1)  # [B G, T, D]
    out = torch.empty(*groups, seq_len, v.shape[-1])
    for start in range(0, seq_len, QUERIES):
        end = min(start + QUERIES, seq_len)
        rows = q[:, :, start:end].flatten(1, 2)  # [B G, H/G t, D]
        scores = torch.bmm(rows, k[:, :end].transpose(1, 2)).unflatten(1, (groups[1], end - start))  # [B G, H/G, t, S]
        scores[..., start:].masked_fill_(torch.ones(end - start, end - start, dtype=torch.bool).triu(1), -torch.inf)
        weights = scores.softmax(-1).flatten(1, 2)
        out[:, :, start:end] = torch.bmm(weights, v[:, :end]).unflatten(1, (groups[1], end - start))
    return out.view(batch, num_heads, seq_len, -1)
