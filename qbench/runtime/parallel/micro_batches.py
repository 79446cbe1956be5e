"""Micro-batches: a forward pass in parts, so that a stage computes one part while the next stage computes another.

Parts are groups of sequences. A batch of one sequence is cut into parts of its new tokens instead, in order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from qbench.run.divisions import borders
from qbench.run.rank_layout import ALL_TO_ALL
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.caches.places.places import Places
from qbench.runtime.caches.step import Step
from qbench.runtime.caches.view.view import ALL_TOKENS
from quant.errors import InputError
from quant.models import ModelConfig


@dataclass(frozen=True, slots=True)
class Part:
    """step, cache: of the part alone; is_last: of the pass"""

    step: Step
    cache: Cache
    is_last: bool


def parts_of(step: Step, cache: Cache, config: ModelConfig, count: int) -> Iterator[Part]:
    """At most `count` parts of a pass that the cache has begun; a part must have run before the next is taken.

    One part if the batch is one token, and for a cache that keeps or reads other tokens than the pass brings.
    """
    if not isinstance(cache, KVCache) or not _is_divisible(step, cache):
        yield Part(step, cache, True)
    elif cache.batch > 1:
        yield from _of_rows(step, cache, config, borders(cache.batch, 1, min(count, cache.batch)))
    else:
        yield from _by_tokens(step, cache, min(count, step.tokens.shape[1]))


def rows_of_lanes(step: Step, cache: Cache, num_lanes: int) -> list[slice]:
    """Sequences of a batch that each lane attends to; those of a cache stay on the same lane.

    All are on lane 0 if the cache has one sequence, or keeps or reads other tokens than a pass brings.
    raises   InputError for a batch with padding on the left
    """
    if cache.batch == 1 or not isinstance(cache, KVCache) or not _has_rows(cache):
        return [slice(0, cache.batch), *[slice(0, 0)] * (num_lanes - 1)]
    if not _is_divisible(step, cache):
        raise InputError(f"dispatch {ALL_TO_ALL} takes batches without padding on the left; leave the padding out")
    return borders(cache.batch, 1, num_lanes)


def part_of_rows(step: Step, cache: Cache, config: ModelConfig, rows: slice) -> Part:
    """The pass over some sequences of a batch"""
    if rows == slice(0, cache.batch):
        return Part(step, cache, True)
    assert isinstance(cache, KVCache)
    return next(_of_rows(step, cache, config, [rows]))


def num_wanted(step: Step, rows: Sequence[slice], last_only: bool) -> list[int]:
    """Tokens of each part of a batch whose logits are asked for"""
    sizes = [its.stop - its.start for its in rows]
    if max(sizes) == sum(sizes):  # all sequences, maybe some tokens of each
        total = step.wanted(torch.empty(*step.tokens.shape, 1), last_only).numel()
        return [total if size else 0 for size in sizes]
    if last_only:
        return sizes
    counts = np.full(sum(sizes), step.tokens.shape[1]) if step.counts is None else step.counts
    return [int(counts[its].sum()) for its in rows]


def joined(outputs: list[Tensor], step: Step, is_by_tokens: bool, last_only: bool) -> Tensor:
    """The outputs of the parts [b, t, K] in the shape of the whole pass, as `Step.wanted` returns it."""
    if is_by_tokens:
        return outputs[-1] if last_only else torch.cat(outputs, dim=1)
    if step.counts is None:
        return torch.cat(outputs)
    return torch.cat([each.reshape(1, -1, each.shape[-1]) for each in outputs], dim=1)


def _is_divisible(step: Step, cache: KVCache) -> bool:
    is_new = step.added is None and step.num_asked is None and step.asked is None and not cache.is_padded
    return _has_rows(cache) and is_new and (cache.batch > 1 or (step.counts is None and step.tokens.shape[1] > 1))


def _has_rows(cache: KVCache) -> bool:
    """Whether a cache over some of the sequences has all that a layer reads"""
    return len(cache.groups) == 1 and cache.view is ALL_TOKENS and cache.places.dropped is None


def _of_rows(step: Step, cache: KVCache, config: ModelConfig, parts: Sequence[slice]) -> Iterator[Part]:
    places = cache.places
    for index in range(len(places.memories)):
        places.reserve(index, step.end)
    tokens = step.tokens if step.counts is None else torch.from_numpy(padded(step.tokens[0].numpy(), step.counts))
    mode = None if cache.latents is None else cache.latents.mode
    for rows in parts:
        part = KVCache(config, GivenPages(places, places.block_table[rows]), mode=mode)
        part.seq_lens = cache.seq_lens[rows]
        counts = None if step.counts is None else step.counts[rows]
        its = tokens[rows] if counts is None else tokens[rows, : counts.max()]
        yield Part(part.begin(its, counts), part, rows.stop == cache.batch)


def _by_tokens(step: Step, cache: KVCache, count: int) -> Iterator[Part]:
    """The cache advances with each part, and goes back in the end: it will advance by the whole pass."""
    before = cache.seq_lens
    for columns in borders(step.tokens.shape[1], 1, count):
        part = cache.begin(step.tokens[:, columns])
        yield Part(part, cache, columns.stop == step.tokens.shape[1])
        cache.seq_lens = np.full(1, columns.stop) + before
    cache.seq_lens = before


class GivenPages(Places):
    """Pages that were chosen and reserved before.

    source   a pool, or the places of all sequences of a cache
    """

    def __init__(self, source: PagePool | Places, block_table: np.ndarray) -> None:
        self.layers, self.memories = source.layers, source.memories
        self.block_table = np.ascontiguousarray(block_table, np.int32)
        self.batch = len(block_table)

    @property
    def size_bytes(self) -> int:
        return 0  # the source's

    def begin(self, counts: Sequence[int]) -> None:
        """The pages are there."""

    def reserve(self, layer: int, num_slots: int) -> None:
        """The pages are there."""


def padded(tokens: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Tokens [N] of sequences one after another -> [B, T], padded on the right"""
    rows = np.zeros((len(counts), counts.max()), np.int64)
    rows[np.arange(rows.shape[1]) < counts[:, None]] = tokens
    return rows
