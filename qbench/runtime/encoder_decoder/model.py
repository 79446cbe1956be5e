"""EncoderDecoder: inputs in, and out comes their decoder, which is used as any model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.places.places import OwnPages, check_sizes
from qbench.runtime.caches.storage.torch_storage import TorchStorage
from qbench.runtime.encoder_decoder.relative_bias import RelativeBias
from qbench.runtime.layers.embedding import Embedding
from qbench.runtime.layers.feed_forward import FeedForward
from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.layers.norm import RMSNorm
from quant.errors import InputError
from quant.kv.floats import Floats
from quant.models import AttentionRule
from quant.models.encoder_decoder import EncoderDecoderConfig


class Attention:
    """x plus attention to norm(x); the caller gives the keys and values.

    projections  of x: q, k and v, or q alone where keys and values come from elsewhere
    """

    def __init__(self, norm: RMSNorm, projections: FusedLinears, output: FusedLinears, head_dim: int) -> None:
        self.norm = norm
        self.projections = projections
        self.output = output
        self.head_dim = head_dim

    def __call__(self, x: Tensor, attend: Callable[..., Tensor]) -> Tensor:
        """x [B, T, K]; attend: the projections as heads [B, H, T, D] each -> [B, H, T, D]"""
        out = attend(*(heads(projected, self.head_dim) for projected in self.projections(x, self.norm)))
        (y,) = self.output(out.transpose(1, 2).flatten(2), residual=x)
        return y


def heads(x: Tensor, head_dim: int) -> Tensor:
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)  # [B, T, H D] -> [B, H, T, D]


@dataclass(frozen=True, slots=True)
class Encoded:
    """The keys and values of one input that the decoder layers read: [1, H, S, D] per layer."""

    keys: list[Tensor]
    values: list[Tensor]


class BiasedAttention:
    """Attention of the decoder to its own tokens, as `TorchStorage.attention`.

    bias   of the decoder's relative positions
    """

    def __init__(self, bias: RelativeBias) -> None:
        self.bias = bias
        self._last: tuple[tuple[int, int], Tensor] | None = None  # every layer wants the same

    def __call__(self, q: Tensor, keys: Tensor, values: Tensor, rule: AttentionRule) -> Tensor:
        size = (q.shape[2], keys.shape[2])
        if self._last is None or self._last[0] != size:
            self._last = (size, self.bias(*size))
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=self._last[1], scale=1.0)


def decoder_cache(config: EncoderDecoderConfig, bias: RelativeBias, batch: int, capacity: int) -> KVCache:
    """An empty cache for `batch` sequences. raises InputError for impossible sizes"""
    check_sizes(batch, capacity)
    floats, attention = Floats("float32"), BiasedAttention(bias)
    sizes = (batch, min(capacity, config.max_positions), config.num_kv_heads)
    widths = (config.head_dim, config.value_dim)
    layers = range(config.num_layers)
    storages = [TorchStorage(*sizes, widths, (floats, floats), attention=attention) for _ in layers]
    return KVCache(config, OwnPages(storages, config.max_positions))


def check_inputs(sequences: Sequence[Sequence[int]]) -> None:
    if not sequences or not all(sequences):
        raise InputError("an input is empty, expected at least 1 token in each (an end token will do)")


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    attention: Attention
    net_norm: RMSNorm
    net: FeedForward


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """keys_values: of the encoded input, for `cross`"""

    attention: Attention
    cross: Attention
    keys_values: FusedLinears
    net_norm: RMSNorm
    net: FeedForward


@dataclass(slots=True)
class EncoderDecoder:
    """Built by `load_encoder_decoder`.

    impls         linear name -> the implementation that runs
    weight_bytes  memory that the weights hold
    """

    config: EncoderDecoderConfig
    embedding: Embedding
    encoder: list[EncoderLayer]
    encoder_bias: RelativeBias
    encoder_norm: RMSNorm
    decoder: list[DecoderLayer]
    decoder_bias: RelativeBias
    decoder_norm: RMSNorm
    head: FusedLinears
    impls: dict[str, str]
    weight_bytes: int

    def condition(self, sequences: Sequence[Sequence[int]]) -> "Conditioned":
        """The decoder on these inputs, each encoded by itself.

        raises   InputError for no input, an empty one, or an id outside the vocabulary
        """
        check_inputs(sequences)
        return Conditioned(self, [self._keys_values(self.encode(tokens)) for tokens in sequences])

    @torch.inference_mode()
    def encode(self, tokens: Sequence[int]) -> Tensor:
        """[S] token ids -> [1, S, K] float32"""
        x = self.embedding(torch.tensor([tokens]))
        bias = self.encoder_bias(len(tokens), len(tokens))
        for layer in self.encoder:
            x = layer.attention(x, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0))
            x = layer.net(x, layer.net_norm, x)
        return self.encoder_norm(x)

    @torch.inference_mode()
    def _keys_values(self, encoded: Tensor) -> Encoded:
        pairs = [layer.keys_values(encoded) for layer in self.decoder]
        keys, values = ([heads(pair[side], self.config.head_dim).contiguous() for pair in pairs] for side in range(2))
        return Encoded(keys, values)


class Conditioned:
    """The decoder of a model on inputs that are encoded; `generate` takes it for a model.

    encoded  one per sequence; the inputs may have unlike lengths, and no sequence sees another's
    call     tokens [B, T] int64 of the B inputs' sequences -> the logits of the token after each
    """

    def __init__(self, model: EncoderDecoder, encoded: list[Encoded]) -> None:
        self.model = model
        self.config = model.config
        self.encoded = encoded
        self.impls = model.impls
        self.prefill_tally = None  # there are no patterns

    def new_cache(self, capacity: int = 256) -> KVCache:
        """An empty cache for one sequence of each input, whose keys and values are kept already."""
        return decoder_cache(self.config, self.model.decoder_bias, len(self.encoded), capacity)

    @torch.inference_mode()
    def __call__(
        self,
        tokens: Tensor,
        cache: KVCache | None = None,
        *,
        last_only: bool = False,
        num_valid: Sequence[int] | None = None,
    ) -> Tensor:
        """As `Model.__call__`: returns [B, T, V] float32, or [B, 1, V] with last_only."""
        cache = cache or self.new_cache(tokens.shape[1])
        step = cache.begin(tokens, num_valid)
        x = self.model.embedding(step.tokens)
        for index, layer in enumerate(self.model.decoder):
            x = layer.attention(x, lambda q, k, v, i=index: cache.attend(i, q, k, v, step.positions))
            x = layer.cross(x, lambda q, i=index: self._attend_encoded(i, q, cache.cu_seqlens))
            x = layer.net(x, layer.net_norm, x)
        cache.advance(step.num_new)
        x = step.wanted(x, last_only)
        (logits,) = self.model.head(x, self.model.decoder_norm)
        if self.config.logit_scale != 1:
            logits = logits * self.config.logit_scale
        return step.as_given(logits, tokens.shape[0], tokens.shape[1], last_only)

    def _attend_encoded(self, layer: int, q: Tensor, cu_seqlens: np.ndarray | None) -> Tensor:
        """The attention of each query to its sequence's input.

        q        [B, H, T, D], of a varlen batch [1, H, N, D]
        returns  as q
        """
        if cu_seqlens is None:
            return torch.cat([self._read(layer, b, q[b : b + 1]) for b in range(len(self.encoded))])
        spans = enumerate(pairwise(cu_seqlens.tolist()))
        return torch.cat([self._read(layer, b, q[:, :, start:end]) for b, (start, end) in spans], dim=2)

    def _read(self, layer: int, b: int, q: Tensor) -> Tensor:
        encoded = self.encoded[b]
        return F.scaled_dot_product_attention(q, encoded.keys[layer], encoded.values[layer], scale=1.0)
