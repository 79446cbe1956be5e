"""The decoder of every architecture: equations over tensors, one Cache for all that depends on the past."""

import torch
from torch import Tensor

from qbench.cache_kinds import DYNAMIC
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.kinds import CacheMaker
from qbench.runtime.caches.step import Step
from qbench.runtime.layers.block import Block
from qbench.runtime.layers.embedding import Embedding
from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.layers.kernel_layers import kernel_layers
from qbench.runtime.layers.latent_layers import latent_layers
from qbench.runtime.layers.norm import Norm
from qbench.runtime.layers.rotations import Rotations
from qbench.runtime.passes import Passes
from quant.kv import KVScheme
from quant.models import ModelConfig


class Model(Passes[Cache]):
    """The decoder on this machine's processor; built by `load_model`.

    one_call      its blocks as one call of the kernels, or None where they are not all of them
    impl          "auto": caches run on the kernels where those have the format; "reference": on torch
    """

    def __init__(
        self,
        config: ModelConfig,
        embedding: Embedding,
        blocks: list[Block],
        norm: Norm,
        head: FusedLinears,
        kv: KVScheme | None = None,
        impl: str = "auto",
        kind: str = DYNAMIC,
    ) -> None:
        self.config = config
        self.embedding = embedding
        self.blocks = blocks
        self.one_call = (latent_layers if config.mla else kernel_layers)(blocks, config)
        self.norm = norm
        self.head = head
        self.kv = kv
        self.impl = impl
        self._caches = CacheMaker(config, kv, impl, kind)
        self.rotations = Rotations(config)
        self.impls: dict[str, str] = {}
        self.kernels: dict[str, str] = {}
        self.weight_bytes = 0

    def new_cache(
        self, batch: int = 1, capacity: int = 256, *, kind: str | None = None, plan: str | None = None
    ) -> Cache:
        """An empty cache; keys and values are float32 where the model names no format for them.

        kind     as qbench.cache_kinds has it, as in "paged" or "window:256"; None: the model's own
        plan     of latent attention, one of PLANS; None: as PLAN_VARIABLE says, else what is measured to be fastest
        raises   InputError for an unknown kind or plan, impossible sizes, and what the kind or the format cannot be
        """
        return self._caches.new(kind, batch, capacity, plan)

    @property
    def cache_kind(self) -> str:
        """Of caches that are made without naming one."""
        return self._caches.kind

    def _of_one_pass(self, batch: int, num_tokens: int) -> Cache:
        return self._caches.of_one_pass(batch)

    def _logits(self, step: Step, cache: Cache, last_only: bool) -> Tensor:
        num_tokens = step.tokens.shape[1]
        alike = step.counts is None
        rotations = self.rotations(step.length, step.end) if alike else self.rotations.at(step.positions)
        # Positions are made only for those who read them: a decode step in one call does not.
        learned = None if self.embedding.positions is None else step.positions
        x = self.embedding(step.tokens, learned)  # [B, T, K], of a ragged pass [1, N, K]
        if self.one_call is not None and self.one_call.takes(cache, num_tokens):
            x = self.one_call(x, rotations[0], num_tokens, cache, last_only)
        else:
            positions = step.positions
            for block in self.blocks:
                x = block(x, rotations, positions, cache)
            x = step.wanted(x, last_only)
        return self.logits(x)

    def logits(self, x: Tensor) -> Tensor:
        """What the head makes of the last layer's outputs: [..., K] -> [..., V]"""
        (logits,) = self.head(x, self.norm)
        softcap = self.config.logit_softcap
        return softcap * torch.tanh(logits / softcap) if softcap else logits
