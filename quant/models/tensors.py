"""The tensors that a model of a config must have."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from quant.models.architectures import HEAD, TensorRow
from quant.models.config import ModelConfig

# Buffers that old checkpoints keep beside the weights; they follow from the config.
DERIVED_SUFFIXES = (".rotary_emb.inv_freq",)


@dataclass(frozen=True, slots=True)
class ExpectedTensor:
    """One tensor of one model. heads: number of heads whose rows GGUF orders differently, 0 for none."""

    gguf_name: str
    shape: tuple[int, ...]
    heads: int


def expected_tensors(config: ModelConfig) -> dict[str, ExpectedTensor]:
    """Canonical name -> what the model must have under it, in file order."""
    return {
        row.name.format(layer): ExpectedTensor(
            row.gguf_name.format(layer),
            tuple(getattr(config, size) for size in row.shape),
            getattr(config, row.heads) if row.heads else 0,
        )
        for row, layer in _rows(config)
        if row.only_if is None or getattr(config, row.only_if)
    }


def is_leftover(name: str) -> bool:
    """Whether a checkpoint may hold this tensor although its model has no place for it: a tied head is one."""
    return name == HEAD or name.endswith(DERIVED_SUFFIXES)


def _rows(config: ModelConfig) -> Iterator[tuple[TensorRow, int]]:
    """Each row of the table; those of a layer for all layers, a layer at a time."""
    for of_layer, group in groupby(config.architecture.tensors, key=lambda row: "{}" in row.name):
        rows = list(group)
        for layer in range(config.num_layers if of_layer else 1):
            yield from ((row, layer) for row in rows)
