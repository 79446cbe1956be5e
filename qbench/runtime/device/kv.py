"""Formats of keys and values in a device's pages."""

import torch
from torch import Tensor

from gpu_kernels.decode.pages import zero_scales
from qbench.runtime.device.place import Place
from quant.kv import KVScheme
from quant.kv.fp8 import Fp8
from quant.kv.ints import IntGroups
from quant.models import ModelConfig

PAGE_SIZE = 64  # tokens; a tile of attention reads one or two pages


def page_dtype(scheme: KVScheme | None, place: Place) -> torch.dtype:
    """Type of a page's numbers: that of the activations, FP8 or int8.

    raises  NotImplementedError for a format that no kernel reads
    """
    if scheme is None or scheme.format.name == f"kv-{place.float_name}":
        return place.dtype
    codec = scheme.format.keys
    if isinstance(codec, Fp8) and (codec.calibrated or codec.per == "head"):
        return codec.dtype
    if codec == IntGroups(8):
        return torch.int8
    known = f"kv-{place.float_name}, kv-int8, kv-fp8, kv-fp8-cal, kv-fp8-cal-head, kv-fp8-e5m2, kv-fp8-e5m2-cal"
    raise NotImplementedError(f"device {place.name}: got {scheme.format.name}, expected one of {known}")


def page_scales(
    scheme: KVScheme | None, config: ModelConfig, place: Place, num_pages: int
) -> dict[str, list[Tensor] | None]:
    """key_scale and value_scale of each layer: [G] or [1] float32 that calibration found, or zeros of so many pages,
    [num_pages, page_size, G, ...], for those that each token will have; None if the format has no scales.
    """
    named: dict[str, list[Tensor] | None] = {"key_scale": None, "value_scale": None}
    dtype = page_dtype(scheme, place)
    if scheme is not None and dtype != place.dtype and not scheme.format.calibrated:
        sizes = (config.num_layers, num_pages, PAGE_SIZE, config.num_kv_heads, dtype, place.torch_name)
        return {name: zero_scales(*sizes) for name in named}
    if scheme is None or scheme.k_scale is None or scheme.v_scale is None:
        return named
    both = zip(named, (scheme.k_scale, scheme.v_scale), strict=True)
    return {name: [torch.from_numpy(row).to(place.torch_name) for row in scales] for name, scales in both}
