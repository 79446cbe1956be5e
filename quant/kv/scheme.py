"""KVScheme: the KV format of one model, with its scales if they were calibrated, and its place in the config.

It travels under the key "kv_cache" of a model's config, {"format": name, "k_scale": [[...] a layer], "v_scale": ...}:
a few numbers per layer, which every container of configs can hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import numpy as np

from quant.errors import InputError, shown
from quant.kv.formats import KV_FORMATS, KVFormat
from quant.kv.fp8 import SMALLEST_SCALE, Fp8
from quant.models import ModelConfig
from quant.stats import KVStats

CONFIG_KEY = "kv_cache"


class KVEntry(TypedDict):
    """The value under CONFIG_KEY; the scales of a calibrated format, [layers][kv heads or 1]"""

    format: str
    k_scale: NotRequired[list[list[float]]]
    v_scale: NotRequired[list[list[float]]]


@dataclass(frozen=True, slots=True)
class KVScheme:
    """k_scale, v_scale   [layers, kv heads or 1] float32 of a calibrated format; None otherwise"""

    format: KVFormat
    k_scale: np.ndarray | None = None
    v_scale: np.ndarray | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any], model: ModelConfig, where: str) -> "KVScheme | None":
        """The scheme that a model's config names; None where keys and values are kept as they are.

        raises   InputError for an unknown format, heads that it cannot hold, or scales that are missing or impossible
        """
        entry = config.get(CONFIG_KEY)
        if entry is None:
            return None
        name = entry.get("format") if isinstance(entry, Mapping) else None
        if not isinstance(name, str) or name not in KV_FORMATS:
            raise InputError(f"{where}: {CONFIG_KEY} names {shown(name)}; known are {', '.join(KV_FORMATS)}")
        fmt = KV_FORMATS[name]
        fmt.check(model.head_dim)
        if not fmt.calibrated:
            return cls(fmt)
        scales = (_scales(entry, key, fmt, model, where) for key in ("k_scale", "v_scale"))
        return cls(fmt, *scales)

    def config_entry(self) -> KVEntry:
        """The value under CONFIG_KEY; float32 survive the way through JSON."""
        if self.k_scale is None or self.v_scale is None:
            return {"format": self.format.name}
        return {"format": self.format.name, "k_scale": self.k_scale.tolist(), "v_scale": self.v_scale.tolist()}


def calibrate_kv(fmt: KVFormat, stats: Sequence[KVStats]) -> KVScheme:
    """The scheme whose scales are the least powers of two that hold each layer's largest key and value.

    FP8 codes are floats, so another scale changes the rounding of normal codes by chance alone. A power of two keeps
    the rounding of scale 1: no value in the calibrated range is rounded worse than without calibration, and small
    ones are rounded better.

    stats    one per layer; ignored if the format finds its scales by itself
    raises   InputError if they are missing
    """
    if not fmt.calibrated:
        return KVScheme(fmt)
    if not stats:
        raise InputError(f"{fmt.name} needs the ranges of keys and values; calibrate, or take a KV format without -cal")
    keys, values = _calibrated(fmt)
    k_scale = np.stack([_scale(keys, layer.k_absmax) for layer in stats])
    return KVScheme(fmt, k_scale, np.stack([_scale(values, layer.v_absmax) for layer in stats]))


def _calibrated(fmt: KVFormat) -> tuple[Fp8, Fp8]:
    """The codecs of keys and values of a calibrated format."""
    assert isinstance(fmt.keys, Fp8) and isinstance(fmt.values, Fp8)
    return fmt.keys, fmt.values


def _scale(codec: Fp8, absmax: np.ndarray) -> np.ndarray:
    """absmax [G, D] -> [1 or G] float32, powers of two"""
    amax = absmax.max(axis=1)  # [G]
    amax = amax if codec.per == "head" else amax.max(keepdims=True)
    mantissa, exponent = np.frexp(np.maximum(amax / codec.largest, SMALLEST_SCALE))  # mantissa in [0.5, 1)
    return np.ldexp(np.ones(len(amax), np.float32), exponent - (mantissa == 0.5))


def scale_shape(fmt: KVFormat, model: ModelConfig) -> tuple[int, int]:
    """The shape of a calibrated format's scales: [layers, kv heads or 1]"""
    per_head = _calibrated(fmt)[0].per == "head"
    return model.num_layers, model.num_kv_heads if per_head else 1


def _scales(entry: Mapping[str, Any], key: str, fmt: KVFormat, model: ModelConfig, where: str) -> np.ndarray:
    shape = scale_shape(fmt, model)
    try:
        scales = np.asarray(entry.get(key), dtype=np.float32)
    except (TypeError, ValueError):
        scales = np.empty(0, np.float32)
    if scales.shape != shape or not (np.isfinite(scales) & (scales > 0)).all():
        raise InputError(f"{where}: {CONFIG_KEY} has no {key} of shape {list(shape)} above 0, which {fmt.name} needs")
    return scales
