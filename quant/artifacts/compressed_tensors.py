"""`quantization_config` as compressed-tensors writes it, and which of our formats it stands for."""

from collections.abc import Mapping
from typing import Any

from quant.errors import InputError
from quant.formats import IntGroupFormat, get_format

QUANT_METHOD, PACKED = "compressed-tensors", "pack-quantized"
PACKED_PARTS = {"weight_packed": "I32", "weight_scale": "F16"}  # part of the QTensor -> safetensors dtype
SHAPE_PART = "weight_shape"  # int64 [2], beside the parts: packed words do not tell the row size


def weight_args(fmt: IntGroupFormat) -> dict[str, Any]:
    """compressed-tensors' QuantizationArgs of a format."""
    return {
        "num_bits": fmt.bits,
        "type": "int",
        "symmetric": fmt.symmetric,
        "strategy": "group" if fmt.group_size else "channel",
        "group_size": fmt.group_size,
        "dynamic": False,
    }


def quantization_config(formats: Mapping[str, str]) -> dict[str, Any]:
    """formats: canonical name of every linear's weight -> format name."""
    modules = {name.removesuffix(".weight"): fmt for name, fmt in formats.items()}
    packed = sorted({fmt for fmt in modules.values() if isinstance(get_format(fmt), IntGroupFormat)})
    groups = {}
    for number, fmt in enumerate(packed):
        members = [module for module, other in modules.items() if other == fmt]
        groups[f"group_{number}"] = {
            "targets": ["Linear"] if len(packed) == 1 else members,
            "weights": weight_args(get_format(fmt)),
            "input_activations": None,
            "output_activations": None,
        }
    return {
        "quant_method": QUANT_METHOD,
        "format": PACKED,
        "quantization_status": "compressed",
        "config_groups": groups,
        # A tied head has no tensor of its own, and is a Linear all the same.
        "ignore": sorted({module for module, fmt in modules.items() if fmt not in packed} | {"lm_head"} - set(modules)),
        "kv_cache_scheme": None,
        "global_compression_ratio": None,
    }


def packed_formats(config: Mapping[str, Any], where: str) -> list[IntGroupFormat]:
    """The formats that a config.json's quantization_config names; empty where it has none.

    raises   InputError for another quantization method, packing or scheme
    """
    quantization = config.get("quantization_config")
    if quantization is None:
        return []
    if not isinstance(quantization, Mapping) or (quantization.get("quant_method"), quantization.get("format")) != (
        QUANT_METHOD,
        PACKED,
    ):
        got = quantization.get("quant_method") if isinstance(quantization, Mapping) else quantization
        raise InputError(f"{where}: quantization_config of {got!r}; read here: {QUANT_METHOD} with format {PACKED}")
    groups = quantization.get("config_groups")
    if not isinstance(groups, Mapping):
        raise InputError(f"{where}: quantization_config has no config_groups")
    return [_format(group, where) for group in groups.values()]


def _format(group: Any, where: str) -> IntGroupFormat:
    args = group.get("weights") if isinstance(group, Mapping) else None
    if isinstance(args, Mapping) and not group.get("input_activations") and not group.get("output_activations"):
        group_size = f"g{args['group_size']}" if args.get("group_size") else ""
        fmt = IntGroupFormat.parse(f"w{args.get('num_bits')}{group_size}{'' if args.get('symmetric') else '-asym'}")
        if fmt is not None:
            wanted = weight_args(fmt)
            if {key: args.get(key, wanted[key] if key == "dynamic" else None) for key in wanted} == wanted:
                return fmt
    raise InputError(
        f"{where}: quantization_config asks for {args!r:.200}; "
        "read here: integers of 2, 3, 4 or 8 bits, by channel or by group"
    )
