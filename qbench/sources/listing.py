"""The models that have names, for `qbench models`."""

from typing import Any

from qbench.reference import MODELS
from qbench.sources.large_shapes import LARGE_SHAPES
from qbench.sources.rand import PREFIX as RAND
from qbench.sources.rand import RandomSource
from qbench.sources.reference import PREFIX as REF
from qbench.sources.reference import open_reference
from qbench.sources.shape import PREFIX as SHAPE
from qbench.sources.shape import ShapeSource
from qbench.sources.shapes import SHAPES
from quant.errors import InputError
from quant.models import ModelConfig
from quant.sizes import num_weights


def list_models() -> list[dict[str, Any]]:
    """One row a model: spec, kind ("ref", "rand" or "shape"), params (weights), description.

    params is None for a reference model whose weights this installation lacks.
    """
    rows = [_reference_row(REF + model.name, model.description) for model in MODELS.values()]
    rows += [_shape_row(RandomSource(RAND + name), "rand", "random weights") for name in SHAPES]
    return rows + [_shape_row(ShapeSource(SHAPE + name), "shape", "sizes for plans") for name in LARGE_SHAPES]


def _reference_row(spec: str, description: str) -> dict[str, Any]:
    try:
        params = num_weights(open_reference(spec).tensors)
    except InputError as error:
        params, description = None, f"{description} (not usable: {error})"
    return {"spec": spec, "kind": "ref", "params": params, "description": description}


def _shape_row(source: ShapeSource, kind: str, what: str) -> dict[str, Any]:
    config = ModelConfig.of(source)
    description = (
        f"{what}: {config.num_layers} layers of {config.hidden_size}, "
        f"vocabulary {config.vocab_size}, context {config.max_positions}"
    )
    return {"spec": source.spec, "kind": kind, "params": num_weights(source.tensors), "description": description}
