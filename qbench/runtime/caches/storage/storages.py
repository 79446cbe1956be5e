"""The memory of each layer, as the model and its KV format allow."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from qbench.run.choices import EXACT
from qbench.runtime.attention.causal_attention import causal_attention
from qbench.runtime.attention.in_torch import CausalAttention, attend_by, is_in_torch
from qbench.runtime.caches.storage.grouped_storage import GroupedStorage, Groups
from qbench.runtime.caches.storage.kernel_storage import KernelStorage, has_store
from qbench.runtime.caches.storage.kv_storage import KVStorage
from qbench.runtime.caches.storage.latent_format import chosen_latents
from qbench.runtime.caches.storage.latent_storage import LatentStorage
from qbench.runtime.caches.storage.residual_storage import ResidualStorage
from qbench.runtime.caches.storage.slot_groups import SlotGroups
from qbench.runtime.caches.storage.torch_storage import TorchStorage
from quant.errors import InputError
from quant.kv import KVScheme
from quant.kv.codec import Codec
from quant.kv.floats import Floats
from quant.models import ModelConfig
from quant.present import present


def make_memories(
    config: ModelConfig,
    scheme: KVScheme | None,
    num_pages: int,
    page_size: int,
    *,
    impl: str = "auto",
    mode: str | None = None,
    layers: Sequence[int] | None = None,
    shared: bool = True,
    num_sequences: int | None = None,
    evicts: bool = False,
) -> tuple[str | None, Sequence[KVStorage]]:
    """The mode of latent attention and the memory of each layer: rows of latents, or every head's keys and values.

    scheme   format of keys and values; None: float32
    impl     one of `attention.in_torch.ATTEND`: in torch; others: in cpu_kernels' stores if these hold the format
    mode     of latent attention; None: as `chosen_latents` has it
    layers   None: all
    shared   whether a page may serve any sequence; False: each sequence has one
    num_sequences, evicts  as for `make_storage`
    raises   InputError as `chosen_latents` and `make_storage`
    """
    layers = range(config.num_layers) if layers is None else layers
    chosen, rows = chosen_latents(config, scheme, mode, impl=impl)
    if rows is not None:
        given = (rows, present(config.mla), num_pages, page_size)
        in_kernels, exact = not is_in_torch(impl), impl == EXACT
        return chosen, [LatentStorage(*given, in_kernels=in_kernels, exact=exact) for _ in layers]
    how = {"shared": shared, "evicts": evicts, "num_sequences": num_sequences} | attention_by(impl)
    how["in_kernels"] = how["in_kernels"] and chosen is None
    return chosen, [make_storage(config, scheme, layer, num_pages, page_size, **how) for layer in layers]


def attention_by(impl: str) -> dict[str, Any]:
    """The arguments of `make_storage` that say how a cache of this `impl` attends."""
    return {"in_kernels": not is_in_torch(impl), "attention": attend_by(impl), "exact": impl == EXACT}


def make_storage(
    config: ModelConfig,
    scheme: KVScheme | None,
    layer: int,
    num_pages: int,
    page_size: int,
    *,
    in_kernels: bool,
    shared: bool = True,
    evicts: bool = False,
    num_sequences: int | None = None,
    attention: CausalAttention = causal_attention,
    exact: bool = False,
) -> KVStorage:
    """Every head's keys and values.

    in_kernels   in a store of cpu_kernels if these hold the format; others attend in torch, by `attention`
    shared       as for `make_memories`
    evicts       whether a policy takes tokens out of the pages of a sequence
    num_sequences  most sequences that have pages of a pool at once, if no two share one; None: any number
    exact        as for `KernelStorage`
    raises       InputError for a format that encodes several tokens together, if pages are shared
    """
    in_kernels = in_kernels and has_store(config, scheme)
    codecs, widths = codecs_of(scheme), (config.head_dim, config.value_dim)
    scales = (None, None) if scheme is None else layer_scales(scheme, layer)
    check_heads(config, scheme)
    if scheme is not None and scheme.format.token_group > 1:
        groups = Groups(scheme.format, scales, num_pages, page_size, (config.num_kv_heads, *widths))
        if evicts or (num_sequences is not None and not in_kernels):
            return SlotGroups(groups, attention)
        if num_sequences is not None:
            return ResidualStorage(config, scheme, layer, num_pages, page_size, num_sequences)
        if shared:
            raise InputError(
                f"{scheme.format.name} encodes several tokens together, so that sequences cannot share pages; take "
                "cache dynamic or static, or a format that encodes each token by itself"
            )
        if in_kernels:
            return ResidualStorage(config, scheme, layer, num_pages, page_size)
        return GroupedStorage(groups, attention)
    if in_kernels:
        return KernelStorage(config, scheme, layer, num_pages, page_size, exact=exact)
    return TorchStorage(num_pages, page_size, config.num_kv_heads, widths, codecs, scales, attention)


def of_head(config: ModelConfig, scheme: KVScheme | None, g: int) -> tuple[ModelConfig, KVScheme | None]:
    """As if the model had this KV head alone."""
    if scheme is not None and scheme.k_scale is not None and scheme.v_scale is not None:
        own = slice(g, g + 1) if scheme.k_scale.shape[1] > 1 else slice(None)
        scheme = replace(scheme, k_scale=scheme.k_scale[:, own], v_scale=scheme.v_scale[:, own])
    return replace(config, num_kv_heads=1), scheme


def codecs_of(scheme: KVScheme | None) -> tuple[Codec, Codec]:
    """Codecs of keys and values."""
    if scheme is not None:
        return scheme.format.keys, scheme.format.values
    floats = Floats("float32")
    return floats, floats


def check_heads(config: ModelConfig, scheme: KVScheme | None) -> None:
    """raises InputError if the KV format cannot hold the keys or the values of a head"""
    for codec, width in zip(codecs_of(scheme), (config.head_dim, config.value_dim), strict=True):
        codec.check(width)


def layer_scales(scheme: KVScheme, layer: int) -> tuple[Tensor | None, Tensor | None]:
    """k_scale and v_scale [G or 1] of one layer; None if the format finds its scales by itself"""
    if scheme.k_scale is None or scheme.v_scale is None:
        return None, None
    return torch.from_numpy(scheme.k_scale[layer]), torch.from_numpy(scheme.v_scale[layer])
