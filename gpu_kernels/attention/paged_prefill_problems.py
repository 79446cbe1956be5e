"""Problems on which paged prefill is checked, compiled and timed."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gpu_kernels.attention.agreement import agrees
from gpu_kernels.attention.paged_operands import PagedCase, dense_heads, paged_cache, sequence_bounds
from gpu_kernels.attention.paged_prefill import Operands, paged_prefill, paged_prefill_ref
from gpu_kernels.attention.paged_prefill_triton import launches, paged_prefill_triton, row_of
from gpu_kernels.attention.textbook import Attended
from gpu_kernels.proof.configured import Configured
from gpu_kernels.proof.problems import Draw, Op, Peer, Problem, dtype_name

KERNEL = Configured(paged_prefill, Operands, paged_prefill_triton, launches, row_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(PagedCase):
    new: tuple[int, ...]  # tokens of each sequence that are queries
    has_sinks: bool = False
    mass_queries: int | None = None
    num_scales: int = 1

    @property
    def label(self) -> str:
        said = f"B={len(self.new)} Q={max(self.new)} T={max(self.seq_lens)} H={self.num_heads}/{self.num_kv_heads}"
        said += (
            f" D={self.head_size} page={self.page_size} {dtype_name(self.query_dtype)} {dtype_name(self.cache_dtype)}"
        )
        said += f" window={self.window}" if self.window else ""
        said += f" mass={self.mass_queries}" if self.mass_queries else ""
        said += " scales per token" if self.num_scales == 0 else ""
        return said + (" sinks" if self.has_sinks else "")

    @property
    def num_pairs(self) -> int:
        """Pairs of a query and a token that it sees."""
        pairs = zip(self.new, self.seq_lens, strict=True)
        return sum(min(n - q + i + 1, self.window or n) for q, n in pairs for i in range(q))


def problems() -> list[Problem]:
    return [_problem(case) for case in (*_timed(), *_odd())]


def _timed() -> list[Case]:
    """Llama 8B's heads: a long prompt, in FP8, several, a window with sinks, and the next piece of a long one."""
    common = {"query_dtype": torch.bfloat16, "page_size": 64, "is_timed": True}
    return [
        Case((8192,), 32, 8, 128, torch.bfloat16, new=(8192,), **common),
        Case((8192,), 32, 8, 128, torch.float8_e4m3fn, new=(8192,), **common),
        Case((1024,) * 8, 32, 8, 128, torch.bfloat16, new=(1024,) * 8, **common),
        Case((8192,), 64, 8, 64, torch.bfloat16, window=128, has_sinks=True, new=(8192,), **common),
        Case((16384,), 32, 8, 128, torch.bfloat16, new=(512,), **common),
        Case((4096,), 32, 8, 128, torch.bfloat16, mass_queries=64, new=(4096,), **common),
    ]


def _odd() -> list[Case]:
    f16 = torch.float16
    return [
        Case((37, 0, 70), 4, 2, 64, f16, new=(37, 0, 1)),
        Case((63, 7), 3, 3, 80, f16, 32, window=7, has_sinks=True, new=(63, 5)),
        Case((33, 2), 4, 1, 256, f16, new=(20, 2)),
        Case((40, 3), 4, 2, 128, torch.float8_e4m3fn, new=(37, 3)),
        Case((40, 3), 4, 2, 128, torch.float8_e4m3fn, new=(37, 3), num_scales=0, mass_queries=7),
        Case((40, 5, 3), 4, 2, 64, f16, window=30, has_sinks=True, mass_queries=7, new=(37, 0, 3)),
        Case((70,), 2, 1, 96, torch.int8, 64, has_sinks=True, new=(17,)),
        Case((40, 3), 4, 2, 64, torch.int8, new=(37, 3), num_scales=0, mass_queries=7),
        Case((63, 7), 3, 3, 80, torch.bfloat16, 32, query_dtype=torch.bfloat16, window=7, has_sinks=True, new=(63, 5)),
    ]


def _problem(case: Case) -> Problem:
    head_size = case.head_size
    num_bytes = (
        2 * sum(case.seq_lens) * case.num_kv_heads * head_size * case.cache_dtype.itemsize  # keys and values
        + sum(case.new) * case.num_heads * (2 * 2 * head_size + 4)  # query and out, lse
        + (4 * len(case.new) * case.num_kv_heads * max(case.seq_lens) if case.mass_queries else 0)  # mass
    )
    is_peer = case.is_timed and case.window is None and case.new == case.seq_lens and not case.mass_queries
    without = {"triton without mass": _without_mass} if case.mass_queries else {}
    return Problem(
        op=Op("paged_prefill", KERNEL, _reference),
        label=case.label,
        sizes=case.sizes | {"Q": max(case.new)},
        operands=partial(_operands, case),
        agrees=partial(agrees, head_size=head_size, num_tokens=max(case.seq_lens)),
        num_bytes=num_bytes,
        ops=2 * case.num_pairs * case.num_heads * 2 * head_size,
        bound="bf16",
        peers={"torch sdpa bf16": Peer(partial(_dense_operands, case.new[0]), _sdpa)} if is_peer else without,
        is_timed=case.is_timed,
        is_interpretable=case.query_dtype != torch.bfloat16,  # the interpreter's bfloat16 products are wrong
    )


def _operands(case: Case, device: str) -> dict[str, Any]:
    draw = Draw(device)
    query = draw.normal(sum(case.new), case.num_heads, case.head_size, dtype=case.query_dtype)
    sizes = case.num_kv_heads, case.head_size, case.page_size, case.cache_dtype, case.num_scales
    return {
        "query": query,
        "cu_queries": sequence_bounds(case.new, device),
        "cache": paged_cache(draw, list(case.seq_lens), *sizes),
        "softmax_scale": case.head_size**-0.5,
        "window": case.window,
        "sinks": draw.normal(case.num_heads) if case.has_sinks else None,
        "most_queries": max(case.new),
        "mass_queries": case.mass_queries,
    }


def _without_mass(**given: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    return paged_prefill(replace(Operands(**given), mass_queries=None), impl="triton")


def _reference(**given: Any) -> Attended:
    return paged_prefill_ref(Operands(**given))


def _dense_operands(length: int, operands: dict[str, Any]) -> dict[str, Tensor]:
    """Sequences of one length, all of it new: [B, H, T, D] in bfloat16."""
    query = operands["query"]
    keys, values = dense_heads(operands["cache"], length, query.dtype)
    return {"query": query.unflatten(0, (-1, length)).transpose(1, 2).contiguous(), "keys": keys, "values": values}


def _sdpa(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return scaled_dot_product_attention(query, keys, values, is_causal=True, enable_gqa=True)
