"""`PatternCache`: a cache of every token whose prompts compute only some blocks of the attention matrix."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from qbench.cache_spec import DENSE, CacheSpec
from qbench.prefill import BlockLists, PrefillPattern, Prompt
from qbench.prefill.block_lists import BLOCK, causal_blocks
from qbench.runtime.attention.block_attention import merge, summary_attention
from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.kv_storage import KVStorage
from qbench.runtime.caches.past import Past
from qbench.runtime.caches.places import Places
from qbench.runtime.caches.sequences import CacheConfig
from qbench.runtime.caches.step import Step
from qbench.runtime.caches.storages import codecs_of
from qbench.runtime.prefill_tally import PrefillTally
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig
from quant.models.encoder_decoder import is_encoder_decoder
from quant.source import Source


class PatternCache(KVCache):
    """The pattern holds for the first forward pass of a sequence, if it brings more than one token.

    Later forward passes attend to all tokens.

    tally  counts computed blocks; several caches may share it
    """

    def __init__(
        self, config: CacheConfig, places: Places[KVStorage], pattern: PrefillPattern, tally: PrefillTally
    ) -> None:
        super().__init__(config, places)
        self.pattern, self.tally = pattern, tally
        self._is_prompt = np.zeros(self.batch, dtype=bool)  # of each sequence, in the forward pass that runs

    def begin(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None = None) -> Step:
        step = super().begin(tokens, num_valid)
        counts = tokens.shape[1] if step.counts is None else step.counts
        self._is_prompt = (self.seq_lens == 0) & (counts > 1)
        return step

    def has_kernel_view(self, num_tokens: int) -> bool:
        return not self._is_prompt.any() and super().has_kernel_view(num_tokens)

    def has_layer_views(self, num_tokens: int) -> bool:
        return not self._is_prompt.any() and super().has_layer_views(num_tokens)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        if not self._is_prompt.any():
            return super().attend(layer, q, k, v, positions)
        return self._attend_each(layer, *self._store(layer, q, k, v, None))

    def rope_attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor
    ) -> Tensor:
        if not self._is_prompt.any():
            return super().rope_attend(layer, q, k, v, rope, positions)
        return self._attend_each(layer, *self._store(layer, q, k, v, rope))

    def _attend_each(self, layer: int, q: Tensor, past: Past) -> Tensor:
        """`attend` of sequences one after the other; as q [B, H, T, D], of a varlen batch [1, H, N, D]"""
        outs = []
        for is_prompt, (one, own_q) in zip(self._is_prompt, past.sequences(q), strict=True):
            if is_prompt:
                outs.append(self._attend_prompt(layer, own_q[0], one)[None])
            else:
                outs.append(self.memories[layer].attend(own_q, one, self.rules[layer])[0])
        return outs[0] if len(outs) == 1 else torch.cat(outs, dim=0 if past.cu_seqlens is None else 2)

    def _attend_prompt(self, layer: int, q: Tensor, past: Past) -> Tensor:
        """Attention of one prompt by the pattern: q [H, T, D] -> [H, T, D]"""
        storage, scale = self.memories[layer], self.rules[layer].scale
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


def check_pattern_suits(config: ModelConfig, scheme: KVScheme | None, spec: CacheSpec) -> None:
    """raises InputError for a model or a KV format that no pattern but dense can have"""
    if spec.prefill == DENSE:
        return
    who, pattern = config.architecture.name, f"prefill pattern {spec.prefill}"
    rules = [config.attention_rule(layer) for layer in range(config.num_layers)]
    if config.mla is not None:
        raise InputError(f"{who} has latent attention, for which there are no block lists; choose prefill {DENSE}")
    if not all(rule.is_plain for rule in rules):
        why = "ALiBi" if rules[0].has_alibi else "capped scores"
        raise InputError(f"{who} has {why}, which {pattern} cannot compute; choose prefill {DENSE}")
    if any(rule.window for rule in rules):
        raise InputError(f"{who} has layers with a window, which {pattern} would widen; choose prefill {DENSE}")
    if scheme is not None and any(codec.token_group > 1 for codec in codecs_of(scheme)):
        raise InputError(
            f"KV format {scheme.format.name} encodes several tokens together, which {pattern} cannot read; choose a "
            "format that encodes each token by itself, as kv-f16 or kv-int8"
        )


def check_source_has_pattern(source: Source, spec: CacheSpec) -> None:
    """`check_pattern_suits` of a source before it is read. raises InputError for an encoder-decoder, too"""
    if spec.prefill == DENSE:
        return
    if is_encoder_decoder(source.config):
        raise InputError(
            f"{source.spec} is an encoder-decoder, whose encoder is not causal; got prefill {spec.prefill}, "
            f"expected {DENSE}"
        )
    config = ModelConfig.of(source)
    check_pattern_suits(config, KVScheme.of(source.config, config, source.spec), spec)
