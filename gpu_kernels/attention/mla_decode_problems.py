"""What MLA decode is checked, compiled and timed on."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.attention.agreement import agrees
from gpu_kernels.attention.configs import Config
from gpu_kernels.attention.flashinfer_peers import mla_decode_peers
from gpu_kernels.attention.mla_decode import (
    FP8_BYTES,
    HEAD_SIZE,
    LATENT_SIZE,
    decode_tokens,
    mla_decode,
    mla_decode_ref,
)
from gpu_kernels.attention.mla_decode_configs import row
from gpu_kernels.attention.mla_decode_triton import launches, mla_decode_triton
from gpu_kernels.attention.paged_operands import dense, page_tables, poison
from gpu_kernels.attention.textbook import Attended
from gpu_kernels.launch import Launch
from gpu_kernels.proof.draw import Draw
from gpu_kernels.proof.problems import Peer, Problem

SCALE = (128 + 64) ** -0.5  # of the heads before absorption: 128 channels without, 64 with rotation
PAGE_SIZE = 64
# Operations a byte that an H200 does: 790e12 a second in bf16 over 4.3e12 bytes.
BF16_OPS_PER_BYTE = 184

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
# (lengths, new tokens, heads, page size, parts); a kernel less to compile for each type where none is one part alone
RAGGED = [
    ([1, 0, 131], 1, 16, 16, 4),
    ([63, 2], 3, 5, 32, 2),
    ([97], 1, 66, 128, 3),
]


def problems() -> list[Problem]:
    timed = [_timed(*sizes) for sizes in TIMED]
    return timed + [
        _problem(*sizes, dtype, is_fp8)
        for sizes in RAGGED
        for is_fp8 in (False, True)
        for dtype in (torch.float16, torch.bfloat16)
    ]


def _timed(batch: int, num_queries: int, num_heads: int, length: int, is_fp8: bool) -> Problem:
    return _problem([length] * batch, num_queries, num_heads, PAGE_SIZE, None, torch.bfloat16, is_fp8, is_timed=True)


def _problem(
    lengths: list[int],
    num_queries: int,
    num_heads: int,
    page_size: int,
    num_kv_splits: int | None,
    dtype: torch.dtype,
    is_fp8: bool,
    is_timed: bool = False,
) -> Problem:
    name = f"{str(dtype).removeprefix('torch.')}{' fp8 cache' if is_fp8 else ''}"
    batch, longest = len(lengths), max(lengths)
    num_rows = batch * num_queries * num_heads
    num_bytes = (
        sum(lengths) * (FP8_BYTES if is_fp8 else 2 * HEAD_SIZE)  # the cache
        + num_rows * (2 * HEAD_SIZE + 2 * LATENT_SIZE + 4)  # query, out, lse
        + 4 * sum(-(-length // page_size) for length in lengths)  # the block table
        + 4 * batch  # lengths
    )
    ops = 2 * sum(lengths) * num_queries * num_heads * (HEAD_SIZE + LATENT_SIZE)
    return Problem(
        op="mla_decode",
        label=f"B={batch} Q={num_queries} H={num_heads} T={longest} page={page_size} {name}",
        sizes={"B": batch, "Q": num_queries, "H": num_heads, "T": longest, "page_size": page_size, "dtype": name},
        operands=partial(_operands, lengths, num_queries, num_heads, page_size, num_kv_splits, dtype, is_fp8),
        call=partial(mla_decode, impl="triton"),
        reference=_reference,
        agrees=partial(agrees, head_size=HEAD_SIZE, num_tokens=longest),
        launches=_launches,
        num_bytes=num_bytes,
        ops=ops,
        ceiling="bandwidth" if ops < BF16_OPS_PER_BYTE * num_bytes else "bf16",
        peers=_peers(longest, is_fp8) if is_timed else {},
        variants=lambda arch: {
            str(config): partial(_with_config, config) for config in row(arch, is_fp8, num_queries * num_heads)[1]
        },
        row=lambda arch: row(arch, is_fp8, num_queries * num_heads)[0],
        is_timed=is_timed,
        is_interpreted=not is_timed and dtype != torch.bfloat16,  # the interpreter's bfloat16 products are wrong
    )


def _operands(
    lengths: list[int],
    num_queries: int,
    num_heads: int,
    page_size: int,
    num_kv_splits: int | None,
    dtype: torch.dtype,
    is_fp8: bool,
    device: str,
) -> dict[str, Any]:
    draw = Draw(device)
    block_table, lengths_tensor, num_pages = page_tables(lengths, page_size, device)
    query = draw.normal(len(lengths), num_queries, num_heads, HEAD_SIZE, dtype=dtype)
    if is_fp8:
        cache = _fp8_cache(draw, num_pages, page_size)
        poison(cache, block_table, lengths, 255)  # NaN as a code, as a scale and as a bfloat16
    else:
        cache = draw.normal(num_pages, page_size, HEAD_SIZE, dtype=dtype)
        poison(cache, block_table, lengths, torch.nan)
    return {
        "query": query,
        "cache": cache,
        "block_table": block_table,
        "lengths": lengths_tensor,
        "softmax_scale": SCALE,
        "num_kv_splits": num_kv_splits,
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


def _reference(num_kv_splits: int | None, **operands: Any) -> Attended:
    return mla_decode_ref(**operands)


def _launches(operands: dict[str, Any], arch: int) -> list[Launch]:
    """Those of each candidate, the default first."""
    query, cache, block_table, lengths, softmax_scale, num_kv_splits = operands.values()
    out, lse = _results(query)
    longest = block_table.shape[1] * cache.shape[1]
    given = (query, cache, block_table, lengths, softmax_scale, longest, num_kv_splits, out, lse)
    configs = row(arch, cache.dtype == torch.uint8, query.shape[1] * query.shape[2])[1]
    return [launch for config in configs for launch in launches(*given, arch=arch, config=config)]


def _results(query: Tensor) -> tuple[Tensor, Tensor]:
    return query.new_empty(*query.shape[:3], LATENT_SIZE), query.new_empty(query.shape[:3], dtype=torch.float32)


def _with_config(
    config: Config,
    query: Tensor,
    cache: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    softmax_scale: float,
    num_kv_splits: int | None,
) -> tuple[Tensor, Tensor]:
    out, lse = _results(query)
    longest = block_table.shape[1] * cache.shape[1]
    given = (query, cache, block_table, lengths, softmax_scale, longest, num_kv_splits)
    mla_decode_triton(*given, out, lse, config)
    return out, lse


def _peers(longest: int, is_fp8: bool) -> dict[str, Peer]:
    peers = {"einsum bf16": Peer(partial(_dense_operands, longest), _einsum)}
    return peers if is_fp8 else peers | mla_decode_peers()


def _dense_operands(length: int, operands: dict[str, Any]) -> dict[str, Any]:
    """Rows of one length, without pages, in the query's type."""
    query = operands["query"]
    tokens = dense(operands["cache"], operands["block_table"], length)
    keys = decode_tokens(tokens.flatten(0, 1), query.dtype).view(*tokens.shape[:2], HEAD_SIZE)
    return {"query": query, "keys": keys, "softmax_scale": operands["softmax_scale"]}


def _einsum(query: Tensor, keys: Tensor, softmax_scale: float) -> Tensor:
    """The chain in torch: two products and a softmax; not causal among new tokens, which changes no time."""
    score = torch.einsum("bqhd,btd->bqht", query, keys) * softmax_scale
    return torch.einsum("bqht,btd->bqhd", score.softmax(-1), keys[..., :LATENT_SIZE])
