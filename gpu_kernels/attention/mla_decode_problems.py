"""Problems on which MLA decode is checked, compiled and timed."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.attention.agreement import agrees
from gpu_kernels.attention.flashinfer_peers import mla_decode_peers
from gpu_kernels.attention.mla_decode import (
    FP8_BYTES,
    HEAD_SIZE,
    LATENT_SIZE,
    Operands,
    decode_tokens,
    mla_decode,
    mla_decode_ref,
)
from gpu_kernels.attention.mla_decode_triton import launches, mla_decode_triton, row_of
from gpu_kernels.attention.paged_operands import SequencesCase, dense, page_tables, poison
from gpu_kernels.attention.textbook import Attended
from gpu_kernels.proof.configured import Configured
from gpu_kernels.proof.problems import Draw, Op, Peer, Problem, dtype_name

SCALE = (128 + 64) ** -0.5  # of the heads before absorption: 128 channels without, 64 with rotation
PAGE_SIZE = 64
KERNEL = Configured(mla_decode, Operands, mla_decode_triton, launches, row_of)
# Operations a byte that an H200 does: 790e12 a second in bf16 over 4.3e12 bytes.
BF16_OPS_PER_BYTE = 184


@dataclass(frozen=True, slots=True)
class Case(SequencesCase):
    num_queries: int
    is_fp8: bool
    page_size: int = PAGE_SIZE
    num_kv_splits: int | None = None

    @property
    def form(self) -> str:
        return dtype_name(self.query_dtype) + (" fp8 cache" if self.is_fp8 else "")


# (batch, new tokens, heads, tokens, is FP8)
TIMED = [
    (128, 1, 16, 4096, False),
    (128, 1, 16, 4096, True),
    (128, 1, 128, 4096, False),
    (128, 1, 128, 4096, True),
    (128, 1, 32, 4096, False),
    (1, 1, 128, 32768, False),
    (1, 1, 16, 32768, True),
    (32, 2, 64, 8192, False),
]
# (sequence lengths, new tokens, heads, page size, parts); if no row has a single part, each type has one kernel fewer
ODD = [
    ((1, 0, 131), 1, 16, 16, 4),
    ((63, 2), 3, 5, 32, 2),
    ((97,), 1, 66, 128, 3),
]


def problems() -> list[Problem]:
    timed = [
        Case((length,) * batch, num_heads, num_queries, is_fp8, query_dtype=torch.bfloat16, is_timed=True)
        for batch, num_queries, num_heads, length, is_fp8 in TIMED
    ]
    odd = [
        Case(seq_lens, num_heads, num_queries, is_fp8, page_size, splits, query_dtype=dtype)
        for seq_lens, num_queries, num_heads, page_size, splits in ODD
        for is_fp8 in (False, True)
        for dtype in (torch.float16, torch.bfloat16)
    ]
    return [_problem(case) for case in timed + odd]


def _problem(case: Case) -> Problem:
    batch, tokens, longest, page_size = len(case.seq_lens), sum(case.seq_lens), max(case.seq_lens), case.page_size
    num_bytes = (
        tokens * (FP8_BYTES if case.is_fp8 else 2 * HEAD_SIZE)  # the cache
        + batch * case.num_queries * case.num_heads * (2 * HEAD_SIZE + 2 * LATENT_SIZE + 4)  # query, out, lse
        + 4 * sum(-(-length // page_size) for length in case.seq_lens)  # the block table
        + 4 * batch  # seq_lens
    )
    ops = 2 * tokens * case.num_queries * case.num_heads * (HEAD_SIZE + LATENT_SIZE)
    sizes = {"B": batch, "Q": case.num_queries, "H": case.num_heads, "T": longest}
    return Problem(
        op=Op("mla_decode", KERNEL, _reference),
        label=f"B={batch} Q={case.num_queries} H={case.num_heads} T={longest} page={page_size} {case.form}",
        sizes=sizes | {"page_size": page_size, "dtype": case.form},
        operands=partial(_operands, case),
        agrees=partial(agrees, head_size=HEAD_SIZE, num_tokens=longest),
        num_bytes=num_bytes,
        ops=ops,
        bound="bandwidth" if ops < BF16_OPS_PER_BYTE * num_bytes else "bf16",
        peers=_peers(longest, case.is_fp8) if case.is_timed else {},
        is_timed=case.is_timed,
        is_interpretable=case.query_dtype != torch.bfloat16,  # the interpreter's products are wrong
    )


def _operands(case: Case, device: str) -> dict[str, Any]:
    draw, seq_lens = Draw(device), list(case.seq_lens)
    block_table, seq_lens_tensor, num_pages = page_tables(seq_lens, case.page_size, device)
    query = draw.normal(len(seq_lens), case.num_queries, case.num_heads, HEAD_SIZE, dtype=case.query_dtype)
    if case.is_fp8:
        cache = _fp8_cache(draw, num_pages, case.page_size)
        poison(cache, block_table, seq_lens, 255)  # NaN as a code, as a scale and as a bfloat16
    else:
        cache = draw.normal(num_pages, case.page_size, HEAD_SIZE, dtype=case.query_dtype)
        poison(cache, block_table, seq_lens, torch.nan)
    return {
        "query": query,
        "cache": cache,
        "block_table": block_table,
        "seq_lens": seq_lens_tensor,
        "softmax_scale": SCALE,
        "num_kv_splits": case.num_kv_splits,
    }


def _fp8_cache(draw: Draw, num_pages: int, page_size: int) -> Tensor:
    """Normal values times a scale of its own for each group."""
    codes = draw.normal(num_pages, page_size, LATENT_SIZE, dtype=torch.bfloat16) * 100
    parts = [
        codes.clamp_(-448, 448).to(torch.float8_e4m3fn),
        draw.uniform(num_pages, page_size, 4, low=0.5, high=1.5) / 100,
        draw.normal(num_pages, page_size, 64, dtype=torch.bfloat16),
    ]
    return torch.cat([part.view(torch.uint8) for part in parts], dim=-1)


def _reference(**given: Any) -> Attended:
    return mla_decode_ref(Operands(**given))


def _peers(longest: int, is_fp8: bool) -> dict[str, Peer]:
    peers = {"einsum bf16": Peer(partial(_dense_operands, longest), _einsum)}
    return peers if is_fp8 else peers | mla_decode_peers()


def _dense_operands(length: int, operands: dict[str, Any]) -> dict[str, Any]:
    """Rows of one length, without pages, in the query's type."""
    query = operands["query"]
    tokens = dense(operands["cache"], operands["block_table"], length)
    keys = decode_tokens(tokens.flatten(0, 1), query.dtype).to(query.dtype).view(*tokens.shape[:2], HEAD_SIZE)
    return {"query": query, "keys": keys, "softmax_scale": operands["softmax_scale"]}


def _einsum(query: Tensor, keys: Tensor, softmax_scale: float) -> Tensor:
    """The chain in torch: two products and a softmax; not causal among new tokens, which changes no time."""
    score = torch.einsum("bqhd,btd->bqht", query, keys) * softmax_scale
    return torch.einsum("bqht,btd->bqhd", score.softmax(-1), keys[..., :LATENT_SIZE])
