"""The attention of one layer of a model, with a past of random tokens, by any mode and on any device of torch."""

from dataclasses import replace

import torch
from torch import Tensor

from qbench.run.cache_spec import DEFAULT_CACHE
from qbench.runtime.attention.rope import RotationTable, inverse_frequencies
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.cache_maker import CacheMaker
from qbench.runtime.layers.blocks import BlockBuilder
from qbench.runtime.layers.latent import LatentAttention
from qbench.runtime.layers.linear import ReferenceLinear
from qbench.runtime.layers.norm import Norm
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig
from quant.present import present
from quant.source import Source

LAYER = 0
PREFIX = f"model.layers.{LAYER}"


class Layer:
    """Layer 0 of a model, from its norm to its output.

    device   "cpu": as the runtime runs it; another of torch: the same modes in torch, in float32
    raises   InputError for a model without latent attention, or a device that torch has not
    """

    def __init__(self, source: Source, device: str = "cpu") -> None:
        config = ModelConfig.of(source)
        if config.mla is None:
            raise InputError(f"{source.spec}: {config.architecture.name} has no latent attention")
        self.device = checked_device(device)
        self.in_kernels = device == "cpu"
        self.config = replace(config, num_layers=1)
        self.scheme = KVScheme.of(source.config, config, source.spec)
        builder = BlockBuilder(self.config, source.read, "auto" if self.in_kernels else "reference")
        self.norm = builder.norm(f"{PREFIX}.input_layernorm")
        self.attention = builder.latent_attention(LAYER, f"{PREFIX}.self_attn")
        self.rotations = RotationTable(inverse_frequencies(config.rope, config.rope_dim), config.rope.rotation_scale)
        if not self.in_kernels:
            move(self.attention, self.norm, self.device)

    def cache(self, mode: str, batch: int, held: int, new: int) -> Cache:
        """A cache for the mode: each of `batch` sequences holds `held` random tokens and has room for new ones."""
        generator = torch.Generator().manual_seed(held)
        cache, mla = self._empty(mode, batch, held + new), present(self.config.mla)
        if held == 0:
            return cache
        cache.begin(torch.zeros(batch, held, dtype=torch.int64))
        if cache.latents is not None:
            rows = torch.randn(batch, held, mla.latent_size, generator=generator).to(self.device)
            view = cache.latent_view(LAYER, held)
            view.extend(rows, view.spans[0])
        else:
            heads = (batch, self.config.num_heads)
            k = torch.randn(*heads, held, mla.qk_head_dim, generator=generator).to(self.device)
            v = torch.randn(*heads, held, mla.v_head_dim, generator=generator).to(self.device)
            cache.attend(LAYER, k[:, :, -1:], k, v, torch.arange(held))
        cache.advance(held)
        return cache

    def inputs(self, batch: int, num_tokens: int) -> Tensor:
        """[B, T, K]"""
        generator = torch.Generator().manual_seed(num_tokens)
        return torch.randn(batch, num_tokens, self.config.hidden_size, generator=generator).to(self.device)

    @torch.inference_mode()
    def run(self, x: Tensor, cache: Cache) -> Tensor:
        """The layer's attention to x, [B, T, K]; the cache may run again, as it does not advance."""
        step = cache.begin(torch.zeros(*x.shape[:2], dtype=torch.int64))
        cos, sin = self.rotations(step.seq_len, step.end)
        return self.attention(x, self.norm, (cos.to(self.device), sin.to(self.device)), step.positions, cache)

    def _empty(self, mode: str, batch: int, capacity: int) -> Cache:
        maker = CacheMaker(self.config, self.scheme, "auto" if self.in_kernels else "reference")
        cache = maker.new(DEFAULT_CACHE, batch, capacity, mode)
        if self.device.type != "cpu":
            cache.move(self.device)
        return cache


def checked_device(name: str) -> torch.device:
    """raises InputError for one that torch does not know, or has not here"""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name!r}: {str(error).splitlines()[0]}") from error
    return device


def move(attention: LatentAttention, norm: Norm, device: torch.device) -> None:
    """The weights of both, as the reference implementation holds them, to the device."""
    norms, groups = [norm, attention.kv_norm], [attention.down, attention.kv_up, attention.output]
    if attention.q_up is not None:
        norms.append(attention.q_up.norm)
        groups.append(attention.q_up.linears)
    for one in norms:
        one.weight = one.weight.to(device)
    for group in groups:
        for linear, _ in group.linears:
            assert isinstance(linear, ReferenceLinear)
            linear.weight = linear.weight.to(device)
