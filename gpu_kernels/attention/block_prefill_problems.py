"""Problems that sparse prefill is checked, compiled and timed on."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gpu_kernels.attention.agreement import agrees
from gpu_kernels.attention.block_prefill import KEY_BLOCK, QUERY_BLOCK, Operands, block_prefill, block_prefill_ref
from gpu_kernels.attention.block_prefill_triton import block_prefill_triton, launches, row_of
from gpu_kernels.attention.textbook import Attended
from gpu_kernels.proof.configured import Configured
from gpu_kernels.proof.problems import Draw, Op, Peer, Problem, dtype_name

KERNEL = Configured(block_prefill, Operands, block_prefill_triton, launches, row_of)


@dataclass(frozen=True, slots=True)
class Case:
    """share: of the causal blocks, drawn for each list; the block of the query itself is always listed."""

    num_tokens: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    dtype: torch.dtype
    share: float
    is_shared: bool = False  # whether all heads share their lists
    is_timed: bool = False

    @property
    def label(self) -> str:
        heads = f"H={self.num_heads}/{self.num_kv_heads} D={self.head_size}"
        lists = "one list" if self.is_shared else "lists per head"
        return f"T={self.num_tokens} {heads} {dtype_name(self.dtype)} {self.share:.0%} of blocks, {lists}"


def problems() -> list[Problem]:
    bf16, f16 = torch.bfloat16, torch.float16
    timed = [Case(8192, 32, 8, 128, bf16, share, is_timed=True) for share in (0.25, 0.5, 1.0)]
    odd = [
        Case(1, 2, 1, 64, f16, 1.0),
        Case(300, 4, 2, 64, f16, 0.5),
        Case(300, 4, 2, 64, f16, 1.0, is_shared=True),
        Case(257, 3, 3, 96, f16, 0.3),
        Case(257, 3, 3, 96, bf16, 0.3),
    ]
    return [_problem(case) for case in (*timed, *odd)]


def _problem(case: Case) -> Problem:
    tokens, heads, size = case.num_tokens, case.num_heads, case.head_size
    pairs = case.share * tokens * (tokens + 1) / 2
    return Problem(
        op=Op("block_prefill", KERNEL, _reference),
        label=case.label,
        sizes={"T": tokens, "H": heads, "Hkv": case.num_kv_heads, "D": size, "dtype": dtype_name(case.dtype)},
        operands=partial(_operands, case),
        agrees=partial(agrees, head_size=size, num_tokens=tokens),
        num_bytes=tokens * (2 * case.num_kv_heads * size * 2 + heads * (2 * 2 * size + 4)),
        ops=round(2 * pairs * heads * 2 * size),
        bound="bf16",
        peers={"torch sdpa bf16, all blocks": Peer(_dense_operands, _sdpa)} if case.is_timed else {},
        is_timed=case.is_timed,
        is_interpretable=case.dtype != torch.bfloat16,  # the interpreter's bfloat16 products are wrong
    )


def _operands(case: Case, device: str) -> dict[str, Any]:
    draw = Draw(device)
    offsets, indices = random_lists(case.num_tokens, 1 if case.is_shared else case.num_heads, case.share)
    return {
        "query": draw.normal(case.num_tokens, case.num_heads, case.head_size, dtype=case.dtype),
        "keys": draw.normal(case.num_tokens, case.num_kv_heads, case.head_size, dtype=case.dtype),
        "values": draw.normal(case.num_tokens, case.num_kv_heads, case.head_size, dtype=case.dtype),
        "offsets": offsets.to(device),
        "indices": indices.to(device),
        "softmax_scale": case.head_size**-0.5,
    }


def random_lists(num_tokens: int, rows: int, share: float) -> tuple[Tensor, Tensor]:
    """offsets [rows, N + 1] and indices: each causal block with a chance, and each query block's own."""
    num_queries, num_keys = -(-num_tokens // QUERY_BLOCK), -(-num_tokens // KEY_BLOCK)
    drawn = torch.rand(rows, num_queries, num_keys, generator=torch.Generator().manual_seed(0)) < share
    blocks = (drawn | torch.eye(num_queries, num_keys, dtype=torch.bool)).tril()
    counts = blocks.sum(2)  # [rows, N]
    ends = counts.flatten().cumsum(0).view(counts.shape)
    return torch.cat((ends[:, :1] - counts[:, :1], ends), 1).int(), blocks.nonzero()[:, 2].int()


def _reference(**given: Any) -> Attended:
    return block_prefill_ref(Operands(**given))


def _dense_operands(operands: dict[str, Any]) -> dict[str, Tensor]:
    """[1, H, T, D] each."""
    return {name: operands[name].transpose(0, 1)[None].contiguous() for name in ("query", "keys", "values")}


def _sdpa(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return scaled_dot_product_attention(query, keys, values, is_causal=True, enable_gqa=True)
