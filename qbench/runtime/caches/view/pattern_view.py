"""`PatternView`: queries of a prompt see only some blocks of its tokens."""

import numpy as np
import torch
from torch import Tensor

from qbench.prefill import BlockLists, PrefillPattern, Prompt
from qbench.prefill.block_lists import BLOCK, causal_blocks
from qbench.runtime.attention.block_attention import merge, summary_attention
from qbench.runtime.caches.sequences import Sequences
from qbench.runtime.caches.step import Past, Step
from qbench.runtime.caches.storage.kv_storage import KVStorage
from qbench.runtime.caches.view.view import QKV, View
from qbench.runtime.prefill_tally import PrefillTally
from quant.models import AttentionRule


class PatternView(View):
    """The pattern holds for the first forward pass of a sequence, if it brings more than one token.

    Later forward passes attend to all tokens.

    tally  counts computed blocks; several views may share it
    """

    def __init__(self, pattern: PrefillPattern, tally: PrefillTally) -> None:
        self.pattern, self.tally = pattern, tally
        self._is_prompt = np.zeros(0, dtype=bool)  # [B] of each sequence, in the forward pass that runs

    @property
    def in_kernels(self) -> bool:
        return not self._is_prompt.any()

    def begin(self, step: Step, sequences: Sequences) -> None:
        counts = step.tokens.shape[1] if step.counts is None else step.counts
        self._is_prompt = (sequences.seq_lens == 0) & (counts > 1)

    def attend(self, layer: int, storage: KVStorage, rule: AttentionRule, past: Past, new: QKV) -> Tensor:
        if not self._is_prompt.any():
            return super().attend(layer, storage, rule, past, new)
        queries, outs = new.append(storage, past), []
        for is_prompt, (one, own_q) in zip(self._is_prompt, past.sequences(queries), strict=True):
            if is_prompt:
                outs.append(self._attend_prompt(storage, rule.scale, one, own_q[0])[None])
            else:
                outs.append(storage.attend(own_q, one, rule)[0])
        return outs[0] if len(outs) == 1 else torch.cat(outs, dim=0 if past.cu_seqlens is None else 2)

    def _attend_prompt(self, storage: KVStorage, scale: float, past: Past, q: Tensor) -> Tensor:
        """Attention of one prompt by the pattern: q [H, T, D] -> [H, T, D]"""
        nothing = q.new_empty(0, 0, 0)
        keys, values = storage.read(past) if self.pattern.reads_keys else (nothing[None], nothing[None])
        prompt = Prompt(q, keys[0], values[0], scale)
        lists, summaries = self.pattern.lists(prompt), self.pattern.summaries(prompt)
        found = storage.attend_blocks(q, past, scale, lists)
        if self.tally.measures_mass:
            everything = torch.ones_like(causal_blocks(prompt.num_tokens))[None]
            dense = storage.attend_blocks(q, past, scale, BlockLists.of_mask(everything, prompt.num_tokens, BLOCK))
            self.tally.add(lists.share, found.lse, dense.lse)
        else:
            self.tally.add(lists.share)
        return found.out if summaries is None else merge(found, summary_attention(q, summaries, scale)).out
