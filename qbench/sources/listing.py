"""The models that have names, for `qbench models`."""

from typing import Any

from qbench.sources.rand import PREFIX as RAND
from qbench.sources.rand import RandomSource
from qbench.sources.reference import PREFIX as REF
from qbench.sources.reference import open_reference
from qbench.sources.shapes import SHAPES
from quant.errors import InputError
from quant.sizes import num_weights


def list_models() -> list[dict[str, Any]]:
    """One row a model: spec, kind ("ref" or "rand"), params (weights), description.

    params is None for a reference model whose weights this installation lacks.
    """
    from qbench.reference import MODELS

    rows = [_reference_row(REF + model.name, model.description) for model in MODELS.values()]
    return rows + [_random_row(name) for name in SHAPES]


def _reference_row(spec: str, description: str) -> dict[str, Any]:
    try:
        params = num_weights(open_reference(spec).tensors)
    except InputError as error:
        params, description = None, f"{description} (not usable: {error})"
    return {"spec": spec, "kind": "ref", "params": params, "description": description}


def _random_row(name: str) -> dict[str, Any]:
    source = RandomSource(RAND + name)
    config = source.config
    description = (
        f"random weights: {config['num_hidden_layers']} layers of {config['hidden_size']}, "
        f"vocabulary {config['vocab_size']}, context {config['max_position_embeddings']}"
    )
    return {"spec": source.spec, "kind": "rand", "params": num_weights(source.tensors), "description": description}
