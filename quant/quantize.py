"""A model as a recipe makes it: a Source that quantizes tensors as it reads them."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.job import QuantizationJob, without_statistics
from quant.kv import calibrate_kv, get_kv_format
from quant.kv.scheme import CONFIG_KEY as KV_KEY
from quant.methods import Layer
from quant.qtensor import QTensor
from quant.source import TensorInfo
from quant.stage import Stage

# Weights in float32 at a time, 4 MiB: a vocabulary of 128k rows needs no second copy of itself in float32, and the
# allocator gives the same pages again, where larger blocks come fresh from the system and fault page by page.
CHUNK_WEIGHTS = 1 << 20


class QuantizedSource:
    """Source whose tensors have the formats that `job` chose.

    Nothing is kept. Each `read` takes the tensor from `stage`, which holds the calibrated layers (see
    `quant.calibration.streaming`), or rounds it now. A tensor that already has its chosen format passes through
    untouched.
    raises   InputError if the job needs calibration and there is no stage
    """

    def __init__(self, job: QuantizationJob, stage: Stage | None = None) -> None:
        if stage is None and job.needs_calibration:
            raise InputError(f"recipe {job.recipe.name} needs calibration, not a tensor at a time")
        self.job = job
        self.stage = stage
        self.spec = job.source.spec
        self.tokenizer = job.source.tokenizer
        self.tensors: Mapping[str, TensorInfo] = {name: self._info(name) for name in job.source.tensors}

    @property
    def config(self) -> Mapping[str, Any]:
        """The source's config without the keys on its own quantization, which no longer hold."""
        return self._config

    @cached_property
    def _config(self) -> Mapping[str, Any]:
        own, recipe = ("quantization_config", KV_KEY), self.job.recipe
        config = {key: value for key, value in self.job.source.config.items() if key not in own}
        if recipe.kv is None:
            return config
        scheme = calibrate_kv(get_kv_format(recipe.kv), self.stage.kv_stats if self.stage else ())
        return config | {KV_KEY: scheme.config_entry()}

    def read(self, name: str) -> QTensor:
        if self.stage is not None and name in self.stage:
            return self.stage.read(name)
        return round_tensor(self.job, name)

    def _info(self, name: str) -> TensorInfo:
        if self.stage is not None and name in self.stage:
            return self.stage.info(name)
        info, wanted = self.job.source.tensors[name], self.job.choices[name].format
        if info.format == wanted:
            return info  # arrays next to its codes, such as a g_idx, pass through as well
        return TensorInfo(info.shape, wanted, get_format(wanted).size_bytes(info.shape))

    def fingerprint(self) -> str:
        parts = [self.job.source.fingerprint(), self.job.description]
        if self.stage is not None:
            parts.append(json.dumps(self.stage.key.to_json(), sort_keys=True))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def round_tensor(job: QuantizationJob, name: str) -> QTensor:
    """One tensor of the source in its chosen format, rounded without statistics, some rows at a time.

    raises   InputError naming the tensor for weights that the format cannot hold
    """
    stored, wanted = job.source.read(name), get_format(job.choices[name].format)
    if stored.format == wanted.name:
        return stored
    method = without_statistics(job.method_of(name))
    parts: dict[str, np.ndarray] = {}
    num_rows = chunk_rows(wanted.name, stored.shape, CHUNK_WEIGHTS) if method.rows_stand_alone else stored.shape[0]
    try:
        for rows, chunk in _row_chunks(stored, num_rows):
            weight = dequantize(chunk)
            wanted.check_range(weight)
            made = method.quantize_layer(Layer({name: weight}, {name: wanted.name}), {})[name]
            for part, array in made.parts.items():
                if part not in parts:
                    parts[part] = np.empty((stored.shape[0], *array.shape[1:]), dtype=array.dtype)
                parts[part][rows] = array
    except InputError as error:
        raise InputError(f"{job.source.spec}: tensor {name}: {error}") from error
    return QTensor(wanted.name, stored.shape, parts)


def chunk_rows(wanted: str, shape: tuple[int, ...], num_weights: int) -> int:
    """How many rows are quantized at a time: those of `num_weights`, or all if they share a scale."""
    fmt = get_format(wanted)
    if not fmt.rows_stand_alone:
        return shape[0]
    return max(1, num_weights // math.prod(shape[1:]))


def _row_chunks(qtensor: QTensor, num_rows: int) -> Iterator[tuple[slice, QTensor]]:
    """`num_rows` rows of the tensor at a time, as views, each with its place."""
    for start in range(0, qtensor.shape[0], num_rows):
        rows = slice(start, min(start + num_rows, qtensor.shape[0]))
        parts = {part: array[rows] for part, array in qtensor.parts.items()}
        yield rows, QTensor(qtensor.format, (rows.stop - start, *qtensor.shape[1:]), parts, qtensor.shared)
