"""The decoder on a device: passes by gpu_kernels, decode steps from a graph, logits back on the host."""

from collections.abc import Callable
from copy import copy
from typing import Self

import numpy as np
import torch
from torch import Tensor

from gpu_kernels.decode.llama import Llama, llama_head, llama_layers, llama_logits
from gpu_kernels.decode.pages import Attend, step_inputs
from gpu_kernels.graphs import DecodeGraphs
from qbench.policies import TokenKinds
from qbench.run.cache_spec import FULL, CacheSpec, check_cache
from qbench.run.choices import IN_TORCH
from qbench.runtime.attention.in_torch import attend_by
from qbench.runtime.caches.step import Step
from qbench.runtime.decoder_model import DecoderModel
from qbench.runtime.device.cache import DeviceCache
from qbench.runtime.device.kv import page_dtype
from qbench.runtime.device.place import Place
from qbench.runtime.device.policy_cache import DevicePolicyCache
from qbench.runtime.device.torch_attention import attend_in_torch
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig
from quant.present import present

# Decode steps over one cache before the next is captured: a capture takes as long as some dozens of them.
EAGER_STEPS = 8


class DeviceModel(DecoderModel[DeviceCache]):
    """Built by `load_device_model`.

    kernels   implementations of ops other than linears, by op
    token_kinds  finds special tokens and punctuation if a policy reads them
    attention the user's choice of attention_choice.ATTENTIONS; None: gpu_kernels
    """

    impl = "device"

    def __init__(
        self,
        config: ModelConfig,
        llama: Llama,
        place: Place,
        kv: KVScheme | None,
        spec: CacheSpec,
        attention: str | None = None,
    ) -> None:
        self.config, self.llama, self.place, self.kv = config, llama, place, kv
        self.cache_spec, self.attention = spec, attention
        self.impls: dict[str, str] = {}
        self.kernels: dict[str, str] = {}
        self.weight_bytes = 0
        self.token_kinds: Callable[[], TokenKinds] = TokenKinds
        check_cache(spec, place.name, attention)
        page_dtype(kv, place)

    def new_cache(self, batch: int = 1, capacity: int = 256, *, spec: CacheSpec | None = None) -> DeviceCache:
        spec = spec or self.cache_spec
        check_cache(spec, self.place.name, self.attention)
        if spec.policy == FULL:
            cache = DeviceCache(self.config, self.place, batch, capacity, self.kv)
        else:
            policy = spec.make_policy()
            cache = DevicePolicyCache(self.config, self.place, batch, self.kv, policy)
            if policy.reads_token_kinds:
                cache.evictor.token_kinds = self.token_kinds()
        if spec.prefill_chunk is not None:
            cache.max_chunk_tokens = min(spec.prefill_chunk, cache.max_chunk_tokens or spec.prefill_chunk)
        return cache

    def _uncached(self, tokens: Tensor) -> DeviceCache:
        return self.new_cache(*tokens.shape, spec=self.cache_spec.for_quality())

    @torch.inference_mode()
    def enqueue(self, tokens: Tensor, cache: DeviceCache) -> None:
        """A call with last_only whose logits stay on the device; the next may be queued before it is done."""
        for part in tokens.split(cache.max_chunk_tokens, dim=1):
            step = self._step(part, cache, None)
            self._on_device(step, cache, last_only=True)
            cache.advance(step.num_new)

    def wait(self) -> None:
        """Until all forward passes are done."""
        self.place.wait()

    def _logits(self, step: Step, cache: DeviceCache, last_only: bool) -> Tensor:
        return self._on_device(step, cache, last_only).cpu().float()

    def _on_device(self, step: Step, cache: DeviceCache, last_only: bool) -> Tensor:
        """Logits in the shape of the step's tokens, on the device."""
        least, most = int(step.tokens.min()), int(step.tokens.max())
        if not 0 <= least <= most < self.config.vocab_size:
            raise InputError(f"token ids from {least} to {most}, expected 0 to {self.config.vocab_size - 1}")
        cache.reserve(step.end)
        is_decode = step.tokens.numel() == cache.batch
        rows, cu_seqlens = cache.rows(step)
        if is_decode and cache.in_graph:
            logits = self._decode(rows, cache)  # [B, V]
            return logits[:, None] if step.counts is None else logits[None]
        if self.attention in IN_TORCH:
            attend = self._attend_in_torch(cache, rows, cu_seqlens)
        else:
            attend = cache.attend(self.llama.rotation, rows, cu_seqlens)
        both = llama_layers(self.llama, rows["token"], attend)  # [N, K] each
        shape = step.tokens.shape
        wanted = [step.wanted(present(each).unflatten(0, shape), last_only) for each in both]
        logits = llama_head(self.llama, *(each.flatten(0, 1) for each in wanted))
        return logits.unflatten(0, wanted[0].shape[:2])

    def attending(self, attention: str) -> Self:
        check_cache(self.cache_spec, self.place.name, attention)
        other = copy(self)
        other.attention = attention
        return other

    def cached_by(self, spec: CacheSpec) -> Self:
        check_cache(spec, self.place.name, self.attention)
        other = copy(self)
        other.cache_spec = spec
        if not (self.place.capture is not None or self.attention in IN_TORCH):
            other.kernels = self.kernels | {"decode": "cuda graph" if spec.policy == FULL else "eager"}
        return other

    def _attend_in_torch(self, cache: DeviceCache, rows: dict[str, Tensor], cu_seqlens: np.ndarray) -> Attend:
        rules = [self.config.attention_rule(layer) for layer in range(self.config.num_layers)]
        return attend_in_torch(
            cache.pages, self.llama.rotation, rows, cu_seqlens, rules, attend_by(present(self.attention))
        )

    def _decode(self, rows: dict[str, Tensor], cache: DeviceCache) -> Tensor:
        if self.attention in IN_TORCH:
            attend = self._attend_in_torch(cache, rows, np.arange(cache.batch + 1))
            return llama_head(self.llama, *llama_layers(self.llama, rows["token"], attend))
        cache.steps += 1
        if cache.graph is None and cache.steps > EAGER_STEPS:
            inputs, buckets = step_inputs(cache.num_pages), [cache.batch]
            where = {"device": self.place.torch_name, "capture": self.place.capture}

            def step(given: dict[str, Tensor]) -> Tensor:
                return llama_logits(self.llama, cache.pages, given)

            cache.graph = DecodeGraphs(step, inputs, buckets, **where)
        return llama_logits(self.llama, cache.pages, rows) if cache.graph is None else cache.graph(rows)
