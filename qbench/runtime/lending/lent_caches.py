"""`LentCaches`: sequences of an instance's pool, of which some have tokens on other instances."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from qbench.runtime.attention.block_attention import merge
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.cache_maker import CacheMaker
from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.places.pages import PagedSequence, PagePool
from qbench.runtime.caches.pooled_caches import PooledCaches
from qbench.runtime.caches.step import Past
from qbench.runtime.caches.storage.kv_storage import KVStorage
from qbench.runtime.caches.view.view import QKV, View
from qbench.runtime.lending.desk import Desk, Slots
from qbench.runtime.lending.lent_sequence import LentPages, LentSequence
from quant.errors import InputError
from quant.models import AttentionRule


class LentCaches(PooledCaches):
    """raises InputError for a model or a policy whose tokens cannot be on several instances"""

    def __init__(self, maker: CacheMaker, pool: PagePool, max_chunk_tokens: int, desk: Desk) -> None:
        super().__init__(maker, pool, max_chunk_tokens)
        config = maker.config
        rules = [config.attention_rule(layer) for layer in range(config.num_layers)]
        is_whole = self._is_full and self.pattern is None and pool.num_sequences is None
        if not is_whole or config.mla is not None or any(rule.window for rule in rules):
            raise InputError(
                "instances lend pages of models with keys and values of every head and without windows, under policy "
                "full and prefill dense, in a KV format that encodes each token by itself; got a "
                f"{config.architecture.name}, {maker.spec}"
            )
        self._desk = desk
        self.shares_prefixes = False  # a page that another request shares could not move
        self.max_chunk_tokens = max_chunk_tokens

    def new_sequence(self) -> LentSequence:
        return LentSequence(self.pool, self._desk.give_back)

    def over(self, sequences: Sequence[PagedSequence]) -> Cache:
        lent = [sequence for sequence in sequences if isinstance(sequence, LentSequence)]
        if not any(sequence.debts for sequence in lent):
            return super().over(sequences)
        places = LentPages(self.pool, lent)
        cache = KVCache(self.config, places, mode=self.pool.mode, view=LentView(lent, self._desk))
        cache.seq_lens = places.seq_lens
        return cache

    def most_pages(self, num_prompt: int, num_new: int) -> int:
        """Own pages: a sequence that outgrows them borrows others."""
        return min(super().most_pages(num_prompt, num_new), self.pool.num_pages)


class LentView(View):
    """Each instance attends to the tokens that it holds, and the debtor merges the results by lse.

    source  Lin et al. 2024 (Infinite-LLM), arXiv:2401.02669: DistAttention
    """

    def __init__(self, sequences: Sequence[LentSequence], desk: Desk) -> None:
        self._sequences, self._desk = sequences, desk

    @property
    def in_kernels(self) -> bool:
        return False

    def attend(self, layer: int, storage: KVStorage, rule: AttentionRule, past: Past, new: QKV) -> Tensor:
        outs = []
        for sequence, (one, q) in zip(self._sequences, _stored(storage, past, new), strict=True):
            if sequence.debts:
                outs.append(self._merged(sequence, layer, storage, rule, one, q))
            else:
                outs.append(storage.attend(q, one, rule)[0])
        return torch.cat(outs, dim=0 if past.cu_seqlens is None else 2)

    def _merged(
        self, sequence: LentSequence, layer: int, storage: KVStorage, rule: AttentionRule, past: Past, q: Tensor
    ) -> Tensor:
        """Older tokens first, so that sums have the order of the text; q [1, H, T, D]"""
        parts = [self._desk.attend(debt, layer, q) for debt in sequence.debts]
        num_held, num_queries = past.num_slots, q.shape[2]
        slots = Slots(num_held - num_queries, num_held, num_queries)
        return merge(*parts, storage.attend_part(q, past, rule, slots)).out


def _stored(storage: KVStorage, past: Past, new: QKV) -> Iterator[tuple[Past, Tensor]]:
    """Each sequence as a batch of its own, its new tokens stored, and its queries [1, H, t, D] rotated.

    Sequences of equal lengths have unequal numbers of slots if they owe unequal numbers of pages, so one call for all
    of them would store tokens in wrong slots.
    """
    if past.cu_seqlens is not None:
        yield from past.sequences(new.append(storage, past))
        return
    for b in range(len(past.ends)):
        one = Past(past.block_table[b : b + 1], past.ends[b : b + 1])
        q, k, v = (x[b : b + 1] for x in (new.q, new.k, new.v))
        yield one, QKV(q, k, v, new.rope).append(storage, one)
