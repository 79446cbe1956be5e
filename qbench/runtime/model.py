"""The decoder of every architecture: equations over tensors, one Cache for all that depends on the past."""

import torch
from torch import Tensor

from qbench.runtime.block import Block
from qbench.runtime.cache import Cache, DenseCache, NoCache
from qbench.runtime.embedding import Embedding
from qbench.runtime.fused import FusedLinears
from qbench.runtime.kernel_cache import KernelCache, has_store
from qbench.runtime.kernel_layers import kernel_layers
from qbench.runtime.norm import RMSNorm
from qbench.runtime.quantized_cache import QuantizedCache, RoundTripCache
from qbench.runtime.rope import RotationTable, inverse_frequencies
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig


class Model:
    """Logits of token ids; built by `load_model`.

    impls         linear name -> the implementation that runs
    weight_bytes  memory that the weights hold
    kv            the format of its keys and values; None: floats
    one_call      its blocks as one call of the kernels, or None where they are not all of them
    impl          "auto": caches run on the kernels where those have the format; "reference": on torch
    """

    def __init__(
        self,
        config: ModelConfig,
        embedding: Embedding,
        blocks: list[Block],
        norm: RMSNorm,
        head: FusedLinears,
        kv: KVScheme | None = None,
        impl: str = "auto",
    ) -> None:
        self.config = config
        self.embedding = embedding
        self.blocks = blocks
        self.one_call = kernel_layers(blocks)
        self.norm = norm
        self.head = head
        self.kv = kv
        self.impl = impl
        self.rotations = RotationTable(inverse_frequencies(config.rope, config.rope_dim), config.rope.rotation_scale)
        self.impls: dict[str, str] = {}
        self.weight_bytes = 0

    def new_cache(self, batch: int = 1, capacity: int = 256) -> KernelCache | DenseCache | QuantizedCache:
        """An empty cache; keys and values are float32 where the model names no format for them."""
        if self.impl != "reference" and has_store(self.config, self.kv):
            return KernelCache(self.config, self.kv, batch, capacity)
        if self.kv is not None:
            return QuantizedCache(self.config, self.kv, batch, capacity)
        return DenseCache(self.config, batch, capacity)

    @torch.inference_mode()
    def __call__(self, tokens: Tensor, cache: Cache | None = None, *, last_only: bool = False) -> Tensor:
        """The logits of the token after each position; the cache, if given, then holds `tokens` too.

        tokens     [B, T] int64
        last_only  only the last position's logits: a prefill needs no others
        returns    [B, T, V] float32, or [B, 1, V] with last_only
        raises     InputError for an id outside the vocabulary or more tokens than the context holds
        """
        cache = cache or (NoCache() if self.kv is None else RoundTripCache(self.kv))
        start, end = self._span(tokens, cache)
        rope = self.rotations(start, end)
        x = self.embedding(tokens)  # [B, T, K]
        if self.one_call is not None and isinstance(cache, KernelCache):
            x = self.one_call(x, rope, end - start, cache, last_only)
        else:
            positions = torch.arange(start, end)  # [T]
            for block in self.blocks:
                x = block(x, rope, positions, cache)
            x = x[:, -1:] if last_only else x
        cache.advance(end - start)
        (logits,) = self.head(x, self.norm)
        return logits

    def _span(self, tokens: Tensor, cache: Cache) -> tuple[int, int]:
        """The positions of the tokens: from, and up to but not including."""
        if tokens.ndim != 2 or not tokens.numel():
            raise InputError(f"tokens of shape {list(tokens.shape)}, expected [batch, at least 1 token]")
        end = cache.length + tokens.shape[1]
        if end > self.config.max_positions:
            raise InputError(
                f"{end} tokens, but the model's context holds {self.config.max_positions}; shorten the text"
            )
        return cache.length, end
