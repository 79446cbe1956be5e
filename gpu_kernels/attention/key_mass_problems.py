"""Problems on which key mass is checked, compiled and timed."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.attention.agreement import mass_agrees
from gpu_kernels.attention.key_mass import Operands, key_mass, key_mass_ref
from gpu_kernels.attention.key_mass_triton import key_mass_triton, launches, row_of
from gpu_kernels.attention.paged import PagedCache
from gpu_kernels.attention.paged_operands import (
    PagedCase,
    dense_heads,
    paged_cache,
    sequence_bounds,
    with_head_lengths,
)
from gpu_kernels.attention.textbook import Mass
from gpu_kernels.proof.configured import Configured
from gpu_kernels.proof.problems import Draw, Op, Peer, Problem, dtype_name

KERNEL = Configured(key_mass, Operands, key_mass_triton, launches, row_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(PagedCase):
    new: tuple[int, ...]  # tokens of each sequence that are queries
    mass_queries: int
    has_head_lengths: bool = False

    @property
    def label(self) -> str:
        said = f"B={len(self.new)} last {self.mass_queries} of {max(self.new)} T={max(self.seq_lens)}"
        said += f" H={self.num_heads}/{self.num_kv_heads} D={self.head_size} page={self.page_size}"
        said += f" {dtype_name(self.query_dtype)} {dtype_name(self.cache_dtype)}"
        said += f" window={self.window}" if self.window else ""
        return said + (" lengths per head" if self.has_head_lengths else "")

    @property
    def observed(self) -> tuple[int, ...]:
        """Queries of each sequence that count."""
        return tuple(min(count, self.mass_queries) for count in self.new)

    @property
    def num_pairs(self) -> int:
        """Pairs of a query that counts and a token that it sees."""
        pairs = zip(self.observed, self.seq_lens, strict=True)
        return sum(max(0, min(n - i, self.window or n)) for count, n in pairs for i in range(count))


def problems() -> list[Problem]:
    return [_problem(case) for case in (*_timed(), *_odd())]


def _timed() -> list[Case]:
    """Llama 8B's heads: the last 64 queries of a prompt, as SnapKV asks, in 16 bits and FP8; several; all of one."""
    common = {"query_dtype": torch.bfloat16, "page_size": 64, "is_timed": True}
    return [
        Case((4096,), 32, 8, 128, torch.bfloat16, mass_queries=64, new=(4096,), **common),
        Case((4096,), 32, 8, 128, torch.float8_e4m3fn, mass_queries=64, new=(4096,), **common),
        Case((1024,) * 8, 32, 8, 128, torch.bfloat16, mass_queries=64, new=(1024,) * 8, **common),
        Case((4096,), 32, 8, 128, torch.bfloat16, mass_queries=4096, new=(4096,), **common),
    ]


def _odd() -> list[Case]:
    f16 = torch.float16
    return [
        Case((37, 5, 131), 4, 2, 64, f16, mass_queries=40, new=(37, 0, 1)),
        Case((63, 3), 3, 3, 80, f16, 32, window=7, mass_queries=11, new=(63, 5)),
        Case((33, 2), 4, 1, 256, f16, mass_queries=20, new=(20, 2)),
        Case((40, 3), 4, 2, 128, torch.float8_e4m3fn, mass_queries=37, has_head_lengths=True, new=(37, 3)),
        Case((200,), 2, 1, 96, torch.int8, 64, window=150, mass_queries=5, new=(17,)),
        Case((63, 7), 3, 3, 80, torch.bfloat16, 32, query_dtype=torch.bfloat16, window=7, mass_queries=11, new=(63, 5)),
    ]


def _problem(case: Case) -> Problem:
    head_size, is_peer = case.head_size, case.is_timed and len(case.new) == 1 and case.mass_queries < case.new[0]
    num_bytes = (
        sum(case.seq_lens) * case.num_kv_heads * head_size * case.cache_dtype.itemsize  # keys
        + sum(case.observed) * case.num_heads * (2 * head_size + 4)  # query, lse
        + 4 * len(case.new) * case.num_kv_heads * max(case.seq_lens)  # mass
    )
    return Problem(
        op=Op("key_mass", KERNEL, _reference),
        label=case.label,
        sizes=case.sizes | {"Q": max(case.new), "observed": case.mass_queries},
        operands=partial(_operands, case),
        agrees=partial(mass_agrees, head_size=head_size, num_tokens=max(case.seq_lens)),
        num_bytes=num_bytes,
        ops=2 * case.num_pairs * case.num_heads * head_size,
        bound="bf16",
        peers={"torch matmul": Peer(partial(_dense_operands, case), _matmul)} if is_peer else {},
        is_timed=case.is_timed,
        is_interpretable=case.query_dtype != torch.bfloat16,  # the interpreter's bfloat16 products are wrong
    )


def _operands(case: Case, device: str) -> dict[str, Any]:
    """lse is about that of normal queries and keys: the oracle takes it as it is."""
    draw = Draw(device)
    cache = paged_cache(draw, list(case.seq_lens), case.num_kv_heads, case.head_size, case.page_size, case.cache_dtype)
    lse = draw.normal(sum(case.new), case.num_heads)
    return {
        "query": draw.normal(sum(case.new), case.num_heads, case.head_size, dtype=case.query_dtype),
        "lse": lse + 4,
        "cu_queries": sequence_bounds(case.new, device),
        "cache": with_head_lengths(cache) if case.has_head_lengths else cache,
        "mass_queries": case.mass_queries,
        "softmax_scale": case.head_size**-0.5,
        "window": case.window,
    }


def _reference(**given: Any) -> Mass:
    return key_mass_ref(Operands(**given))


def _dense_operands(case: Case, operands: dict[str, Any]) -> dict[str, Any]:
    """One sequence: query [H, observed, D], keys [H, T, D] in bfloat16, lse [H, observed, 1], the hidden keys."""
    cache: PagedCache = operands["cache"]
    count, length, group = case.mass_queries, case.seq_lens[0], case.num_heads // case.num_kv_heads
    keys, _ = dense_heads(cache, length, case.query_dtype)
    last = torch.arange(length - count, length, device=keys.device)[:, None]
    return {
        "query": (operands["query"][-count:].transpose(0, 1) * operands["softmax_scale"]).contiguous(),
        "keys": keys[0].repeat_interleave(group, dim=0),
        "lse": operands["lse"][-count:].T[..., None],
        "hidden": torch.arange(length, device=keys.device) > last,
        "group": group,
    }


def _matmul(query: Tensor, keys: Tensor, lse: Tensor, hidden: Tensor, group: int) -> Tensor:
    weight = ((query @ keys.mT).float() - lse).exp().masked_fill(hidden, 0.0)  # [H, observed, T]
    return weight.sum(1).unflatten(0, (-1, group)).sum(1)
