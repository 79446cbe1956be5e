"""The launches of flash_triton.py's kernel, for each op that runs it."""

from dataclasses import dataclass

import triton
from torch import Tensor

from gpu_kernels.attention.configs import Config
from gpu_kernels.attention.flash_triton import flash_kernel
from gpu_kernels.attention.paged import CODES, scale_words
from gpu_kernels.attention.paged_attention import AttentionOperands
from gpu_kernels.attention.parts_triton import LOG2_E, combine_launch, empty_parts
from gpu_kernels.fp8_triton import readable
from gpu_kernels.launch import Launch


@dataclass(frozen=True, slots=True)
class Sequences:
    """The rows of each of `count` sequences.

    most_queries  of a sequence; without `cu_queries` [B + 1] each has as many
    cu_keys       [B + 1], of dense keys and values
    """

    count: int
    most_queries: int
    cu_queries: Tensor | None = None
    cu_keys: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one call; out [tokens, H, Dv] and lse [tokens, H] are dense.

    query           [tokens, H, Dk]
    keys, values    [num_pages, page_size, Hkv, D] of `paged`, or dense rows [key tokens, Hkv, D]
    paged           the op's operands if it reads pages
    scores          [B, Hkv, rows, S] float32, to be written: of each sequence's last rows; None: not wanted
    """

    query: Tensor
    keys: Tensor
    values: Tensor
    out: Tensor
    lse: Tensor
    sequences: Sequences
    softmax_scale: float
    paged: AttentionOperands | None = None
    scores: Tensor | None = None

    @property
    def num_kv_heads(self) -> int:
        return self.keys.shape[-2]

    @property
    def most_rows(self) -> int:
        """Most rows of a sequence and a key-value head."""
        return self.sequences.most_queries * (self.query.shape[1] // self.num_kv_heads)


def most_queries(query: Tensor, given: int | None) -> int:
    """The most queries of a sequence: the caller's number, and at most those of query [tokens, H, D]."""
    return len(query) if given is None else min(given, len(query))


def flash_launches(work: Work, config: Config, num_splits: int, arch: int) -> list[Launch]:
    """One program per (block of rows, key-value head, sequence and part); if there are parts to join, then one per
    row.
    """
    query, out, lse, sequences, paged = work.query, work.out, work.lse, work.sequences, work.paged
    cache, scores, group = paged and paged.cache, work.scores, query.shape[1] // work.num_kv_heads
    part, part_lse = empty_parts(out, lse, num_splits)  # [tokens, H, S, Dv], [tokens, H, S]
    scale_strides = cache.scale_strides if cache else (0, 0, 0)
    key_size, value_size = query.shape[-1], out.shape[-1]
    block_d = triton.next_power_of_2(value_size)
    arguments = {
        "query_ptr": query,
        "key_ptr": readable(work.keys, arch),
        "value_ptr": readable(work.values, arch),
        "cu_queries_ptr": sequences.cu_queries,
        "cu_keys_ptr": sequences.cu_keys,
        "block_table_ptr": cache and cache.block_table,
        "seq_lens_ptr": cache and cache.seq_lens,
        "key_scale_ptr": _words(cache and cache.key_scale),
        "value_scale_ptr": _words(cache and cache.value_scale),
        "sinks_ptr": paged and paged.sinks,
        "out_ptr": part,
        "lse_ptr": part_lse,
        "scores_ptr": scores,
        "num_queries": sequences.most_queries,
        "num_heads": query.shape[1],
        "num_splits": num_splits,
        "mass_queries": None if scores is None else scores.shape[2] // group,
        "num_slots": None if scores is None else scores.shape[3],
        "window": paged and paged.window,
        "softmax_scale": work.softmax_scale * LOG2_E.value,
        "stride_qt": query.stride(0),
        "stride_qh": query.stride(1),
        "stride_kp": work.keys.stride(0),
        "stride_kt": work.keys.stride(-3),
        "stride_kh": work.keys.stride(-2),
        "stride_vp": work.values.stride(0),
        "stride_vt": work.values.stride(-3),
        "stride_vh": work.values.stride(-2),
        "stride_tb": cache.block_table.stride(0) if cache else 0,
        "stride_tp": cache.block_table.stride(1) if cache else 0,
        "stride_l": cache.seq_lens.stride(0) if cache else 0,
        "stride_lh": cache.seq_lens.stride(1) if cache and cache.has_head_lengths else None,
        "stride_scale": scale_strides[2],
        "stride_sp": scale_strides[0],
        "stride_st": scale_strides[1],
        "GROUP": group,
        "KEY_SIZE": min(key_size, block_d),
        "KEY_REST": max(key_size - block_d, 0),
        "VALUE_SIZE": value_size,
        "PAGE_SIZE": cache.page_size if cache else 0,
        "FORMAT": CODES.get(work.keys.dtype, ""),
        "TOKEN_SCALES": cache is not None and cache.has_token_scales,
        "MINIMA": cache is not None and cache.has_minima,
        "COMPILED": isinstance(flash_kernel, triton.JITFunction),
        "BLOCK_R": config.block_r,
        "BLOCK_N": config.block_n,
        "BLOCK_D": block_d,
    }
    grid = (triton.cdiv(work.most_rows, config.block_r), work.num_kv_heads, sequences.count * num_splits)
    first = Launch(flash_kernel, grid, arguments, config.num_warps, config.num_stages)
    return [first] if num_splits == 1 else [first, combine_launch(part, part_lse, out, lse)]


def _words(scale: Tensor | None) -> Tensor | None:
    return None if scale is None else scale_words(scale)
