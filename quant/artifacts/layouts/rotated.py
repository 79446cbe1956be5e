"""The layout of models that are rotated while they run: compressed-tensors under names that others refuse.

Linears that read rotated inputs are stored in the rotated basis, so a program without the rotations would compute
another function. `quant.models.online` has the key of config.json that names the rotations. transformers only warns of
an unknown quant_method, so model type and architectures have names of their own, too: "rotated_llama" is not known.
"""

from collections.abc import Mapping
from typing import Any

from quant.artifacts.layouts.compressed_tensors import CompressedTensorsLayout
from quant.models.online import CONFIG_KEY

TYPE, CLASS = "rotated_", "Rotated"  # before the names of a config


class RotatedLayout(CompressedTensorsLayout):
    quant_method = "rotated"


def with_own_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config as a directory has it."""
    names = {"architectures": [CLASS + name for name in config["architectures"]]}
    return {**config, **names, "model_type": TYPE + config.get("model_type", "")}


def with_plain_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a directory with the names of its architecture; any other config as it is."""
    names, kind = config.get("architectures"), config.get("model_type")
    if CONFIG_KEY not in config or not isinstance(names, list) or not isinstance(kind, str):
        return dict(config)
    plain = {"architectures": [str(name).removeprefix(CLASS) for name in names]}
    kind = kind.removeprefix(TYPE)
    return {**config, **plain, **({"model_type": kind} if kind else {})}
