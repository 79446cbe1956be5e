"""Formats of keys and values in a device's pages."""

import torch
from torch import Tensor

from qbench.runtime.device.place import Place
from quant.kv import KVScheme
from quant.kv.fp8 import Fp8
from quant.models import ModelConfig

E4M3 = torch.float8_e4m3fn


def page_dtype(scheme: KVScheme | None, place: Place) -> torch.dtype:
    """Type of a page's numbers: that of the activations, or FP8 with scales found by calibration.

    raises  NotImplementedError for a format that no kernel reads
    """
    if scheme is None or scheme.format.name == f"kv-{place.float_name}":
        return place.dtype
    codec = scheme.format.keys
    if isinstance(codec, Fp8) and codec.calibrated and codec.dtype == E4M3:
        return E4M3
    known = f"kv-{place.float_name}, kv-fp8-cal, kv-fp8-cal-head"
    raise NotImplementedError(f"device {place.name}: got {scheme.format.name}, expected one of {known}")


def page_scales(scheme: KVScheme | None, config: ModelConfig, place: Place) -> dict[str, list[Tensor] | None]:
    """key_scale and value_scale of each layer, [G] or [1] float32; None if the format has no scales."""
    named: dict[str, list[Tensor] | None] = {"key_scale": None, "value_scale": None}
    if scheme is None or scheme.k_scale is None or scheme.v_scale is None:
        return named
    both = zip(named, (scheme.k_scale, scheme.v_scale), strict=True)
    return {name: [torch.from_numpy(row).to(place.torch_name) for row in scales] for name, scales in both}
