"""Scales of calibrated FP8 keys and values, as compressed-tensors keeps them with each layer's attention.

tensor                                shape
model.layers.L.self_attn.k_scale      [1] float32, or [kv heads, 1, 1] if each head has its own
model.layers.L.self_attn.v_scale      the same

A model's config knows them under quant.kv's own key (see `quant.kv.scheme`); in a directory that key keeps the
format's name alone, and formats that compressed-tensors does not know keep their scales there.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from quant.artifacts.layouts import StoredModule
from quant.artifacts.layouts.scheme import QuantizationArgs
from quant.errors import InputError
from quant.kv import KVScheme
from quant.kv.scheme import CONFIG_KEY, KVEntry
from quant.models import ModelConfig
from quant.present import present
from quant.safetensors.writer import Entry

STRATEGIES = {"kv-fp8-cal": "tensor", "kv-fp8-cal-head": "attn_head"}  # KV format -> strategy of compressed-tensors
SCALES = ("k_scale", "v_scale")
DTYPES = ("F32", "F16", "BF16")  # the first is written


def kv_cache_scheme(config: Mapping[str, Any]) -> QuantizationArgs | None:
    """compressed-tensors' kv_cache_scheme of a model's config; None where keys and values are kept in another way."""
    strategy = STRATEGIES.get((config.get(CONFIG_KEY) or {}).get("format", ""))
    if strategy is None:
        return None
    return {
        "num_bits": 8,
        "type": "float",
        "symmetric": True,
        "strategy": strategy,
        "group_size": None,
        "dynamic": False,
    }


def kv_scale_tensors(config: Mapping[str, Any], model: ModelConfig) -> dict[Entry, np.ndarray]:
    """The scale tensors in a directory of this config, which has a kv_cache_scheme."""
    scheme = present(KVScheme.of(config, model, "config"))
    shape = (1,) if STRATEGIES[scheme.format.name] == "tensor" else (model.num_kv_heads, 1, 1)
    return {
        Entry(f"{_attention(layer)}.{part}", DTYPES[0], shape): scales[layer].reshape(shape)
        for layer in range(model.num_layers)
        for part, scales in zip(SCALES, (present(scheme.k_scale), present(scheme.v_scale)), strict=True)
    }


def read_kv_cache(
    config: Mapping[str, Any], model: ModelConfig, modules: Mapping[str, StoredModule], where: str
) -> dict[str, KVEntry]:
    """{key of the config: entry with all scales}; empty if the config names no scheme of compressed-tensors.

    raises   InputError for a scheme that is not read here, or scales that are missing or belong to no layer
    """
    quantization = config.get("quantization_config") or {}
    scheme = quantization.get("kv_cache_scheme")
    attentions = [modules.get(_attention(layer)) for layer in range(model.num_layers)]
    if scheme is None:
        if any(module is not None and set(SCALES) & set(module.parts) for module in attentions):
            raise InputError(f"{where}: there are k_scale tensors, and quantization_config has no kv_cache_scheme")
        return {}
    name = _format_name(scheme)
    if name is None:
        raise InputError(f"{where}: kv_cache_scheme asks for {scheme!r:.200}; read here: static 8-bit floats")
    k_scale, v_scale = ([_read(module, part, where) for module in attentions] for part in SCALES)
    return {CONFIG_KEY: {"format": name, "k_scale": k_scale, "v_scale": v_scale}}


def is_kv_scale(name: str) -> bool:
    return name.endswith(tuple(f".self_attn.{part}" for part in SCALES))


def _attention(layer: int) -> str:
    return f"model.layers.{layer}.self_attn"


def _format_name(scheme: Any) -> str | None:
    if not isinstance(scheme, Mapping):
        return None
    for name, strategy in STRATEGIES.items():
        wanted = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": strategy, "dynamic": False}
        if all(scheme.get(key, default) == default for key, default in wanted.items() if key != "strategy"):
            if scheme.get("strategy", "tensor") == strategy:
                return name
    return None


def _read(module: StoredModule | None, part: str, where: str) -> list[float]:
    stored = module.parts.get(part) if module else None
    if module is None or stored is None or stored.dtype not in DTYPES:
        got = "has none for every layer" if stored is None else f"has it in {stored.dtype}"
        raise InputError(f"{where}: kv_cache_scheme calls for {part} in {' or '.join(DTYPES)}, and the directory {got}")
    return module.read(part).astype(np.float32).reshape(-1).tolist()
