"""Problems on which MLA prefill is checked, compiled and timed."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gpu_kernels.attention.agreement import agrees
from gpu_kernels.attention.mla_prefill import Operands, mla_prefill, mla_prefill_ref
from gpu_kernels.attention.mla_prefill_triton import launches, mla_prefill_triton, row_of
from gpu_kernels.attention.paged_operands import sequence_bounds
from gpu_kernels.attention.textbook import Attended
from gpu_kernels.proof.configured import Configured
from gpu_kernels.proof.problems import Draw, Op, Peer, Problem, dtype_name

KEY_SIZE, VALUE_SIZE = 192, 128
KERNEL = Configured(mla_prefill, Operands, mla_prefill_triton, launches, row_of)

Sizes = tuple[tuple[int, ...], tuple[int, ...], int]  # new tokens of each sequence, tokens of each, heads
TIMED: list[Sizes] = [
    ((4096,), (4096,), 128),
    ((4096,), (4096,), 16),
    ((1024,) * 4, (1024,) * 4, 32),
]
ODD: list[Sizes] = [((37, 0, 2), (37, 5, 131), 3), ((1,), (1,), 1)]


def problems() -> list[Problem]:
    timed = [_problem(*sizes, torch.bfloat16, is_timed=True) for sizes in TIMED]
    return timed + [_problem(*sizes, dtype, False) for sizes in ODD for dtype in (torch.float16, torch.bfloat16)]


def _problem(
    new: tuple[int, ...], seq_lens: tuple[int, ...], num_heads: int, dtype: torch.dtype, is_timed: bool
) -> Problem:
    name = dtype_name(dtype)
    pairs = sum(n - q + i + 1 for q, n in zip(new, seq_lens, strict=True) for i in range(q))
    num_bytes = num_heads * (
        2 * sum(seq_lens) * (KEY_SIZE + VALUE_SIZE)  # keys and values
        + sum(new) * (2 * KEY_SIZE + 2 * VALUE_SIZE + 4)  # query, out, lse
    )
    is_peer = is_timed and new == seq_lens
    return Problem(
        op=Op("mla_prefill", KERNEL, _reference),
        label=f"B={len(new)} Q={max(new)} T={max(seq_lens)} H={num_heads} {name}",
        sizes={"B": len(new), "Q": max(new), "T": max(seq_lens), "H": num_heads, "dtype": name},
        operands=partial(_operands, new, seq_lens, num_heads, dtype),
        agrees=partial(agrees, head_size=KEY_SIZE, num_tokens=max(seq_lens)),
        num_bytes=num_bytes,
        ops=2 * pairs * num_heads * (KEY_SIZE + VALUE_SIZE),
        bound="bf16",
        peers={"torch sdpa bf16": Peer(partial(_dense_operands, new[0]), _sdpa)} if is_peer else {},
        is_timed=is_timed,
        is_interpretable=dtype != torch.bfloat16,  # the interpreter's bfloat16 products are wrong
    )


def _operands(
    new: tuple[int, ...], seq_lens: tuple[int, ...], num_heads: int, dtype: torch.dtype, device: str
) -> dict[str, Any]:
    draw = Draw(device)
    return {
        "query": draw.normal(sum(new), num_heads, KEY_SIZE, dtype=dtype),
        "keys": draw.normal(sum(seq_lens), num_heads, KEY_SIZE, dtype=dtype),
        "values": draw.normal(sum(seq_lens), num_heads, VALUE_SIZE, dtype=dtype),
        "cu_queries": sequence_bounds(new, device),
        "cu_keys": sequence_bounds(seq_lens, device),
        "softmax_scale": KEY_SIZE**-0.5,
        "most_queries": max(new),
    }


def _reference(**given: Any) -> Attended:
    return mla_prefill_ref(Operands(**given))


def _dense_operands(length: int, operands: dict[str, Any]) -> dict[str, Tensor]:
    """Sequences of one length, all of it new: [B, H, T, D]."""
    rows = {name: operands[name].unflatten(0, (-1, length)) for name in ("query", "keys", "values")}
    return {name: tensor.transpose(1, 2).contiguous() for name, tensor in rows.items()}


def _sdpa(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return scaled_dot_product_attention(query, keys, values, is_causal=True)
