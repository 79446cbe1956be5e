"""A model as a recipe would leave it, known without quantizing: formats and sizes, no bytes."""

import numpy as np

from quant.kv import KVScheme, get_kv_format
from quant.kv.scheme import CONFIG_KEY
from quant.models import ModelConfig
from quant.quantize import foreseen_tensors
from quant.recipes import Recipe
from quant.source import Source, SourceView


class PlannedSource(SourceView):
    """What sizes and `predict_memory` are taken from. What is read of it is as it was before quantizing.

    kv       format of keys and values; None: the recipe's own
    raises   InputError where the recipe or the KV format does not fit the model
    """

    def __init__(self, source: Source, recipe: Recipe, kv: str | None = None) -> None:
        super().__init__(source)
        self.tensors = foreseen_tensors(source, recipe)
        kv = kv or recipe.kv
        if kv is not None:
            self.config = {**source.config, CONFIG_KEY: foreseen_scheme(source, kv).config_entry()}


def foreseen_scheme(source: Source, kv: str) -> KVScheme:
    """The format with scales of 1 where calibration would find some: as many bytes."""
    fmt, model = get_kv_format(kv), ModelConfig.of(source)
    fmt.check(model.head_dim)
    if not fmt.calibrated:
        return KVScheme(fmt)
    scales = np.ones((model.num_layers, model.num_kv_heads if fmt.keys.per == "head" else 1), np.float32)
    return KVScheme(fmt, scales, scales)
