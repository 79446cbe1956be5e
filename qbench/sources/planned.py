"""A model as a recipe would leave it, known without quantizing: formats and sizes, no bytes."""

import numpy as np

from quant.job import QuantizationJob
from quant.kv import KVScheme, get_kv_format
from quant.kv.scheme import CONFIG_KEY, scale_shape
from quant.kv.source import KVSource
from quant.kv_names import FLOAT32
from quant.models import ModelConfig
from quant.source import Source, SourceView


class PlannedSource(SourceView):
    """The model of a job, for sizes and `predict_memory`. Reading it gives the tensors before quantization.

    kv       KV format; None: the recipe's own
    raises   InputError if the KV format does not fit the model
    """

    def __init__(self, job: QuantizationJob, kv: str | None = None) -> None:
        super().__init__(job.source)
        self.tensors = job.foreseen_tensors()
        kv = kv or job.recipe.kv
        if kv == FLOAT32:
            self.config = KVSource(job.source, kv).config
        elif kv is not None:
            self.config = {**job.source.config, CONFIG_KEY: foreseen_scheme(job.source, kv).config_entry()}


def foreseen_scheme(source: Source, kv: str) -> KVScheme:
    """The format with scales of 1 where calibration would find some: as many bytes."""
    fmt, model = get_kv_format(kv, others=(FLOAT32,)), ModelConfig.of(source)
    fmt.check(model.head_dim)
    if not fmt.calibrated:
        return KVScheme(fmt)
    scales = np.ones(scale_shape(fmt, model), np.float32)
    return KVScheme(fmt, scales, scales)
