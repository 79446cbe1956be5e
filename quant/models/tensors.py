"""The tensors that a model of a config must have."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from quant.models.architecture import HEAD
from quant.models.config import ModelConfig
from quant.models.rows import TensorRow
from quant.models.stored import Stored, StoredAt
from quant.present import present

# Buffers that old checkpoints keep in addition to the weights; they follow from the config.
DERIVED_SUFFIXES = (
    *(f".rotary_emb.{name}" for name in ("inv_freq", "cos_cached", "sin_cached")),
    ".position_ids",
    ".masked_bias",
)
NUMBER_IN_NAME = re.compile(r"\.(layers|experts)\.(\d+)(?=\.)")


@dataclass(frozen=True, slots=True)
class ExpectedTensor:
    """One tensor of one model. heads: number of heads whose rows GGUF orders differently, or 0.

    gguf_name   the tensor of a GGUF file that holds it, alone or with others
    expert      its place in the GGUF tensor `gguf_name`, which stacks all experts, or None if it has one of its own
    optional    whether a file may lack it, which means zeros
    gguf_rows   its rows in the GGUF tensor `gguf_name`, if that holds those of others too
    stored      where a Hugging Face checkpoint keeps it
    """

    gguf_name: str
    shape: tuple[int, ...]
    heads: int
    stored: StoredAt
    expert: int | None = None
    gguf_rows: slice | None = None
    optional: bool = False


def expected_tensors(config: ModelConfig) -> dict[str, ExpectedTensor]:
    """Canonical name -> the tensor that the model must have, in file order; a layer's experts one after another."""
    expected = {}
    for row, layer in _rows(config):
        shape = tuple(_field(config, size) for size in row.shape)
        heads = _field(config, row.heads) if row.heads else 0
        stack = row.gguf_stack and _stored_at(config, row.gguf_stack, layer)
        gguf_name, gguf_rows = (stack.name, _rows_in(stack)) if stack else (row.gguf_name.format(layer), None)
        for expert in range(_field(config, row.experts)) if row.experts else (None,):
            name = row.name.format(layer, expert)
            stored = _stored_at(config, row.stored, layer) if row.stored else StoredAt(name)
            expected[name] = ExpectedTensor(gguf_name, shape, heads, stored, expert, gguf_rows, row.optional)
    return expected


def names_by_layer(config: ModelConfig) -> dict[int | None, list[str]]:
    """The names of the expected tensors, those of each decoder layer; None: tensors before and after the layers."""
    names: dict[int | None, list[str]] = {}
    for name in expected_tensors(config):
        names.setdefault(split_name(name)[1], []).append(name)
    return names


def row_names(config: ModelConfig) -> frozenset[str]:
    """The rows of the table that the config has, by the names that `split_name` gives."""
    return frozenset(row.name for row in _rows_of(config))


def split_name(name: str) -> tuple[str, int | None, int | None]:
    """The name of its row in the table, its layer and its expert; None if it is not in a layer or expert.

    e.g. "model.layers.3.mlp.experts.7.up_proj.weight" -> ("model.layers.{}.mlp.experts.{}.up_proj.weight", 3, 7)
    """
    numbers = {kind: int(number) for kind, number in NUMBER_IN_NAME.findall(name)}
    return NUMBER_IN_NAME.sub(r".\1.{}", name), numbers.get("layers"), numbers.get("experts")


def is_leftover(name: str, config: ModelConfig) -> bool:
    """Whether a checkpoint may hold this tensor although its model has no place for it: a tied head is one."""
    layer = split_name(name)[1]
    is_draft = config.architecture.has_draft_layers and layer is not None and layer >= config.num_layers
    return name == HEAD or name.endswith((*DERIVED_SUFFIXES, *config.architecture.leftovers)) or is_draft


def _rows(config: ModelConfig) -> Iterator[tuple[TensorRow, int]]:
    """Each row of the table that the config has; those of a layer for all layers, a layer at a time."""
    for of_layer, group in groupby(_rows_of(config), key=lambda row: "{}" in row.name):
        rows = list(group)
        for layer in range(config.num_layers if of_layer else 1):
            yield from ((row, layer) for row in rows if row.layers in (None, config.layer_kind(layer)))


def _rows_of(config: ModelConfig) -> list[TensorRow]:
    return [row for row in config.architecture.tensors if row.only_if is None or _field(config, row.only_if)]


def _stored_at(config: ModelConfig, stored: Stored, layer: int) -> StoredAt:
    return StoredAt(
        stored.name.format(layer),
        tuple(_field(config, size) for size in stored.stack),
        stored.place if stored.stack else None,
        _field(config, stored.heads) if stored.heads else 1,
        stored.transposed,
        stored.offset,
    )


def _rows_in(stack: StoredAt) -> slice:
    place = present(stack.place)
    start = sum(stack.sizes[:place])
    return slice(start, start + stack.sizes[place])


def _field(config: ModelConfig, path: str):
    return attrgetter(path)(config)
