"""A model as a recipe makes it: a Source that quantizes what it reads."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np

from quant.errors import InputError
from quant.formats import ActivationFormat, dequantize, get_format
from quant.kv import calibrate_kv, get_kv_format
from quant.kv.scheme import CONFIG_KEY as KV_KEY
from quant.methods import Layer, Method, Rtn
from quant.models import EMBEDDING, HEAD
from quant.qtensor import QTensor
from quant.recipes import Recipe, TensorPlan
from quant.source import Source, TensorInfo, TokenizerInfo
from quant.stage import Stage

# Weights in float32 at a time, 4 MiB: a vocabulary of 128k rows needs no second copy of itself in float32, and the
# allocator gives the same pages again, where larger blocks come fresh from the system and fault page by page.
CHUNK_WEIGHTS = 1 << 20

FLOATS = ("f32", "f16", "bf16")


class QuantizedSource:
    """Source whose tensors have the formats that `recipe` plans for `source`.

    Nothing is kept: each `read` reads from `source`, dequantizes and quantizes, or takes the tensor from `stage`,
    where calibrated layers lie (see `quant.calibration.streaming`). A tensor that already has its planned format
    passes through untouched.
    raises   InputError if the recipe needs calibration and there is no stage, or a row fits no format
    """

    def __init__(self, source: Source, recipe: Recipe, stage: Stage | None = None) -> None:
        self.spec = source.spec
        self.source = source
        self.recipe = recipe
        self.stage = stage
        self.plan = recipe.plan(source)
        if stage is None and needs_calibration(recipe, self.plan):
            raise InputError(f"recipe {recipe.name} needs calibration, not a tensor at a time")
        self._tensor_at_a_time = _tensor_at_a_time(recipe.make_method())
        self.tensors: Mapping[str, TensorInfo] = {name: self._info(name) for name in source.tensors}

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The source's, less what it says of its own quantization: the tensors are no longer those."""
        own = ("quantization_config", KV_KEY)
        config = {key: value for key, value in self.source.config.items() if key not in own}
        if self.recipe.kv is None:
            return config
        scheme = calibrate_kv(get_kv_format(self.recipe.kv), self.stage.kv_stats if self.stage else ())
        return config | {KV_KEY: scheme.config_entry()}

    @property
    def tokenizer(self) -> TokenizerInfo | None:
        return self.source.tokenizer

    def read(self, name: str) -> QTensor:
        if self.stage is not None and name in self.stage:
            return self.stage.read(name)
        source, wanted = self.source.read(name), self.plan[name].format
        if source.format == wanted:
            return source
        try:
            return convert(source, wanted, lambda weight: self._quantize(name, weight, wanted))
        except InputError as error:
            raise InputError(f"{self.spec}: tensor {name}: {error}") from error

    def _quantize(self, name: str, weight: np.ndarray, wanted: str) -> QTensor:
        get_format(wanted).check_range(weight)
        method = self.plan[name].method
        method = self._tensor_at_a_time if method is None else _tensor_at_a_time(method)
        return method.quantize_layer(Layer({name: weight}, {name: wanted}), {})[name]

    def _info(self, name: str) -> TensorInfo:
        if self.stage is not None and name in self.stage:
            return self.stage.info(name)
        info, wanted = self.source.tensors[name], self.plan[name].format
        if info.format == wanted:
            return info  # what is beside its codes, such as a g_idx, passes through as well
        return TensorInfo(info.shape, wanted, get_format(wanted).size_bytes(info.shape))

    def fingerprint(self) -> str:
        parts = [self.source.fingerprint(), describe_recipe(self.recipe, self.plan)]
        if self.stage is not None:
            parts.append(json.dumps(self.stage.key, sort_keys=True))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def foreseen_tensors(source: Source, recipe: Recipe) -> dict[str, TensorInfo]:
    """What the recipe will make of each tensor, as far as that is known without calibrating."""
    infos, default = {}, recipe.make_method()
    for name, planned in recipe.plan(source).items():
        info, fmt = source.tensors[name], get_format(planned.format)
        method = planned.method or default
        shared = () if len(info.shape) == 1 else method.shared(fmt, info.shape[-1])
        passes_through = info.format == fmt.name and not method.needs
        infos[name] = info if passes_through else TensorInfo(info.shape, fmt.name, fmt.size_bytes(info.shape), shared)
    return infos


def needs_calibration(recipe: Recipe, plan: Mapping[str, TensorPlan]) -> bool:
    """Whether a method of the recipe, or its KV format, asks what the activations look like."""
    if recipe.make_method().needs or any(row.method is not None and row.method.needs for row in plan.values()):
        return True
    return recipe.kv is not None and get_kv_format(recipe.kv).calibrated


def describe_recipe(recipe: Recipe, plan: Mapping[str, TensorPlan]) -> str:
    """Everything of a recipe that decides bytes, as text: equal texts, equal bytes."""
    methods = {name: row.method for name, row in plan.items() if row.method is not None}
    return json.dumps(
        {
            "method": recipe.method,
            "options": dict(recipe.options),
            "kv": recipe.kv,
            "formats": {name: row.format for name, row in plan.items()},
            "methods": {name: [method.name, asdict(method)] for name, method in methods.items()},
        },
        sort_keys=True,
    )


def method_name(name: str, source: Source, recipe: Recipe, planned: TensorPlan) -> str | None:
    """The method that rounds a tensor; None for norms, biases and what stays in floats."""
    if len(source.tensors[name].shape) == 1 or planned.format in FLOATS:
        return None
    method = planned.method or recipe.make_method()
    # An embedding's input is tokens, which have no statistics; those of a head are not for every method.
    looked_up = name == EMBEDDING and (HEAD in source.tensors or not method.weighs_tied_tables)
    return (_tensor_at_a_time(method) if looked_up else method).name


def rounded_again(source: Source, plan: Mapping[str, TensorPlan]) -> list[str]:
    """Tensors of few bits that the plan rounds to other ones: the losses of both roundings add up."""
    stored = {name: source.tensors[name].format for name in plan}
    return [
        name for name, row in plan.items() if stored[name] not in FLOATS and row.format not in (*FLOATS, stored[name])
    ]


def fallbacks(plan: Mapping[str, TensorPlan]) -> dict[tuple[str, str], int]:
    """(format of the recipe, format instead of it) -> how many tensors: those whose rows its blocks do not divide."""
    return dict(Counter((row.in_place_of, row.format) for row in plan.values() if row.in_place_of is not None))


def _tensor_at_a_time(method: Method) -> Method:
    """The method of tensors that have no statistics, such as the embedding: as careful, without calibration."""
    return Rtn(effort=getattr(method, "effort", "fast")) if method.needs else method


def chunk_rows(wanted: str, shape: tuple[int, ...], num_weights: int) -> int:
    """How many rows are quantized at a time: those of `num_weights`, or all where they share a scale."""
    fmt = get_format(wanted)
    if isinstance(fmt, ActivationFormat) and not fmt.rows_stand_alone:
        return shape[0]
    return max(1, num_weights // math.prod(shape[1:]))


def convert(source: QTensor, wanted: str, quantize: Callable[[np.ndarray], QTensor]) -> QTensor:
    """`source` dequantized and quantized again, some rows at a time.

    quantize   [n, K] float32 -> QTensor of format `wanted`; unless the format says so, no row may depend on another
    """
    num_rows, rows_per_chunk = source.shape[0], chunk_rows(wanted, source.shape, CHUNK_WEIGHTS)
    parts: dict[str, np.ndarray] = {}
    for start in range(0, num_rows, rows_per_chunk):
        rows = slice(start, min(start + rows_per_chunk, num_rows))
        chunk = QTensor(
            source.format,
            (rows.stop - start, *source.shape[1:]),
            {part: array[rows] for part, array in source.parts.items()},
            source.shared,
        )
        for part, array in quantize(dequantize(chunk)).parts.items():
            if part not in parts:
                parts[part] = np.empty((num_rows, *array.shape[1:]), dtype=array.dtype)
            parts[part][rows] = array
    return QTensor(wanted, source.shape, parts)
