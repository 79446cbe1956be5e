"""Problems on which paged decode is checked, compiled and timed."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gpu_kernels.attention.agreement import agrees
from gpu_kernels.attention.flashinfer_peers import paged_decode_peers
from gpu_kernels.attention.paged_decode import Operands, paged_decode, paged_decode_ref
from gpu_kernels.attention.paged_decode_triton import launches, paged_decode_triton, row_of
from gpu_kernels.attention.paged_operands import (
    PagedCase,
    dense_heads,
    paged_cache,
    with_head_lengths,
)
from gpu_kernels.attention.textbook import Attended
from gpu_kernels.proof.configured import Configured
from gpu_kernels.proof.problems import Draw, Op, Peer, Problem, dtype_name

# Operations a byte that an H200 does: 790e12 a second in bf16 over 4.3e12 bytes.
BF16_OPS_PER_BYTE = 184
KERNEL = Configured(paged_decode, Operands, paged_decode_triton, launches, row_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(PagedCase):
    num_queries: int = 1
    num_scales: int = 1
    has_sinks: bool = False
    num_kv_splits: int | None = None
    mass_queries: int | None = None
    has_head_lengths: bool = False

    @property
    def num_rows(self) -> int:
        return self.num_queries * self.num_heads // self.num_kv_heads

    @property
    def label(self) -> str:
        said = f"B={len(self.seq_lens)} Q={self.num_queries} H={self.num_heads}/{self.num_kv_heads} D={self.head_size}"
        dtypes = f"{dtype_name(self.query_dtype)} {dtype_name(self.cache_dtype)}"
        said += f" T={max(self.seq_lens)} page={self.page_size} {dtypes}"
        said += f" window={self.window}" if self.window else ""
        said += f" mass={self.mass_queries}" if self.mass_queries else ""
        said += " scales per token" if self.num_scales == 0 else ""
        said += " lengths per head" if self.has_head_lengths else ""
        return said + (" sinks" if self.has_sinks else "")


def problems() -> list[Problem]:
    return [_problem(case) for case in (*_timed(), *_odd())]


def _timed() -> list[Case]:
    """Llama 8B's heads at length, in each form; one sequence; multi-query; a window with sinks; mass by both ways."""
    common = {"query_dtype": torch.bfloat16, "page_size": 64, "is_timed": True}
    long, forms = (8192,) * 64, (torch.bfloat16, torch.float8_e4m3fn, torch.int8)
    return [
        *(Case(long, 32, 8, 128, dtype, **common) for dtype in forms),
        *(Case(long, 32, 8, 128, dtype, num_scales=0, **common) for dtype in forms[1:]),
        Case((32768,), 32, 8, 128, torch.bfloat16, **common),
        Case((4096,) * 64, 32, 32, 128, torch.bfloat16, **common),
        Case((8192,) * 64, 64, 1, 128, torch.bfloat16, **common),
        Case((8192,) * 64, 64, 8, 64, torch.bfloat16, window=128, has_sinks=True, **common),
        Case(long, 32, 8, 128, torch.bfloat16, num_queries=4, **common),
        *(Case(long, 32, 8, 128, dtype, mass_queries=1, **common) for dtype in forms[:2]),
        Case((8192,) * 64, 64, 1, 128, torch.bfloat16, mass_queries=1, **common),
    ]


def _odd() -> list[Case]:
    # Few combinations, since each is a kernel to compile; one part alone is in test_paged_decode.py.
    f16, e4m3, e5m2, int8 = torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8
    cases = [
        Case((1, 0, 131), 8, 2, 64, f16, num_kv_splits=4),
        Case((63, 2), 3, 3, 80, f16, 32, num_queries=3, window=7, has_sinks=True, num_kv_splits=2),
        Case((97,), 22, 1, 96, f16, page_size=128, num_kv_splits=3),
        Case((40,), 4, 2, 256, f16, num_kv_splits=2),
        Case((1, 0, 131), 8, 2, 128, e4m3, num_scales=2, num_kv_splits=2),
        Case((63,), 6, 3, 64, e5m2, 64, num_queries=2, num_kv_splits=1),
        Case((70, 3), 4, 4, 64, int8, num_scales=4, num_kv_splits=2),
        # Mass by scores, then by keys: 18 observed rows are more bytes than 64 numbers.
        Case((70, 3, 0), 8, 2, 64, f16, num_queries=3, window=40, has_sinks=True, num_kv_splits=2, mass_queries=2),
        Case((70, 3, 0), 18, 1, 64, f16, window=40, has_sinks=True, num_kv_splits=2, mass_queries=1),
        Case((70, 3), 4, 2, 128, e4m3, num_scales=2, num_kv_splits=2, mass_queries=1, has_head_lengths=True),
        Case((70, 0, 131), 4, 2, 128, e4m3, num_scales=0, num_kv_splits=2, mass_queries=1, has_head_lengths=True),
        Case((63, 70), 6, 3, 80, e5m2, 64, num_scales=0, num_queries=2, window=40, num_kv_splits=1),
        Case((70, 0, 131), 4, 2, 128, int8, num_scales=0, num_kv_splits=2, mass_queries=1, has_head_lengths=True),
        Case((63, 70), 6, 3, 80, int8, 64, num_scales=0, num_queries=2, window=40, num_kv_splits=1),
    ]
    wide = [(cases[1], torch.bfloat16), (cases[4], e4m3)]
    return cases + [_in_bfloat16(case, dtype) for case, dtype in wide]


def _in_bfloat16(case: Case, cache_dtype: torch.dtype) -> Case:
    return replace(case, query_dtype=torch.bfloat16, cache_dtype=cache_dtype)


def _problem(case: Case) -> Problem:
    longest, batch = max(case.seq_lens), len(case.seq_lens)
    head_size = case.head_size
    # Tokens that the queries of a sequence see together, and that each of them sees (counted as the last does).
    read = [min(n, (case.window or n) + case.num_queries - 1) for n in case.seq_lens]
    seen = [min(n, case.window or n) for n in case.seq_lens]
    num_bytes = (
        2 * sum(read) * case.num_kv_heads * head_size * case.cache_dtype.itemsize  # keys and values
        + batch * case.num_queries * case.num_heads * (2 * 2 * head_size + 4)  # query and out, lse
        + 4 * sum(-(-n // case.page_size) for n in read)  # the block table
        + 4 * batch  # seq_lens
        + (2 * 4 * sum(read) * case.num_kv_heads if case.num_scales == 0 else 0)
        + (4 * batch * case.num_kv_heads * longest if case.mass_queries else 0)  # mass; scores on its way do not count
    )
    ops = 2 * sum(seen) * case.num_queries * case.num_heads * 2 * head_size
    is_peer = case.is_timed and case.window is None and case.num_queries == 1 and not case.mass_queries
    is_peer = is_peer and case.num_scales > 0
    peers = {"triton without mass": _without_mass} if case.mass_queries else {}
    return Problem(
        op=Op("paged_decode", KERNEL, _reference),
        label=case.label,
        sizes=case.sizes | {"Q": case.num_queries},
        operands=partial(_operands, case),
        agrees=partial(agrees, head_size=head_size, num_tokens=longest),
        num_bytes=num_bytes,
        ops=ops,
        bound="bandwidth" if ops < BF16_OPS_PER_BYTE * num_bytes else "bf16",
        peers=_peers(case, longest) if is_peer else peers,
        is_timed=case.is_timed,
        is_interpretable=case.query_dtype != torch.bfloat16,  # the interpreter's bfloat16 products are wrong
    )


def _operands(case: Case, device: str) -> dict[str, Any]:
    draw = Draw(device)
    sizes = case.num_kv_heads, case.head_size, case.page_size, case.cache_dtype, case.num_scales
    query = draw.normal(len(case.seq_lens), case.num_queries, case.num_heads, case.head_size, dtype=case.query_dtype)
    cache = paged_cache(draw, list(case.seq_lens), *sizes)
    return {
        "query": query,
        "cache": with_head_lengths(cache) if case.has_head_lengths else cache,
        "softmax_scale": case.head_size**-0.5,
        "window": case.window,
        "sinks": draw.normal(case.num_heads) if case.has_sinks else None,
        "num_kv_splits": case.num_kv_splits,
        "mass_queries": case.mass_queries,
    }


def _without_mass(**given: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    return paged_decode(replace(Operands(**given), mass_queries=None), impl="triton")


def _reference(**given: Any) -> Attended:
    return paged_decode_ref(Operands(**given))


def _peers(case: Case, longest: int) -> dict[str, Peer]:
    peers = {"torch sdpa bf16": Peer(partial(_dense_operands, longest), _sdpa)}
    return peers if case.cache_dtype == torch.int8 else peers | paged_decode_peers()


def _dense_operands(length: int, operands: dict[str, Any]) -> dict[str, Tensor]:
    """[B, H, T, D] in bfloat16"""
    query = operands["query"]
    keys, values = dense_heads(operands["cache"], length, query.dtype)
    return {"query": query.transpose(1, 2), "keys": keys, "values": values}


def _sdpa(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return scaled_dot_product_attention(query, keys, values, enable_gqa=True)
