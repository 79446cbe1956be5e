"""Which channels of each tensor a rotation turns: facts about decoders, as data.

RMSNorm without a factor commutes with a rotation: the factors of each norm go into the linears that read it, and then
the residual stream, the latents of MLA, and the values of each head may have any orthogonal basis.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from quant.errors import InputError
from quant.methods.folding_table import FOLDS
from quant.models import EMBEDDING, FINAL_NORM, HEAD, ExpectedTensor, ModelConfig, split_name
from quant.models.online import DOWN_PROJ
from quant.models.rows import LAYER
from quant.present import present
from quant.rotation.basis import RESIDUAL, VALUES

# Linears that add to the residual stream; those but the first read the inner channels of a feed-forward net.
DOWN_PROJS = (
    "mlp.down_proj",
    "mlp.experts.{}.down_proj",
    "mlp.shared_experts.down_proj",
    "block_sparse_moe.experts.{}.w2",
)
WRITERS = ("self_attn.o_proj", *DOWN_PROJS)


@dataclass(frozen=True, slots=True)
class Channels:
    """blocks   [blocks, size] int64: each block of channels is turned by itself
    basis    which one, if it can be learned: RESIDUAL or VALUES; None: the fixed one of its size
    """

    blocks: np.ndarray
    basis: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """One row of the table of tensors.

    columns   input features that are turned, or None
    rows      outputs that are turned, or None
    norm      name of the norm whose factors its columns take
    is_norm   whether it is a norm, whose factors become 1
    """

    columns: Channels | None = None
    rows: Channels | None = None
    norm: str | None = None
    is_norm: bool = False


def places_of(config: ModelConfig, tensors: Mapping[str, ExpectedTensor], where: str) -> dict[str, Place]:
    """Name of a row of the table of tensors -> its place; tensors without one stay as they are.

    config   with the rotations that run with the model
    tensors  of the model, without their layers' rotation
    raises   InputError for a model that a rotation changes: which tensor, and why
    """
    if config.architecture.norm != "rms":
        raise InputError(
            f"{where}: rot- needs RMSNorms; the {config.architecture.name} has LayerNorms, which take the mean of the "
            "channels away, and a rotation moves the mean"
        )
    places: dict[str, Place] = {}
    known = {split_name(name)[0]: tensor.shape for name, tensor in tensors.items()}
    online = _down_projs(known) if DOWN_PROJ in config.online else ()
    for name, place in (*_residual(config), *_norms(config), *_heads(config), *online):
        old = places.get(name, Place())
        changed = {key: getattr(place, key) for key in ("columns", "rows", "norm") if getattr(place, key) is not None}
        places[name] = replace(old, **changed, is_norm=old.is_norm or place.is_norm)
    for row in config.architecture.tensors:
        if row.name in known and "hidden_size" in row.shape and row.name not in places:
            raise InputError(
                f"{where}: rot- turns the residual stream, and {row.name.format(0)} works on its single channels, "
                "behind which no linear can take the rotation"
            )
    return places


def _residual(config: ModelConfig) -> Iterator[tuple[str, Place]]:
    every = Channels(_one_block(config.hidden_size), RESIDUAL)
    yield EMBEDDING, Place(columns=every)
    yield HEAD, Place(columns=every, norm=FINAL_NORM)
    yield FINAL_NORM, Place(is_norm=True)
    for name in WRITERS:
        yield f"{LAYER}.{name}.weight", Place(rows=every)
        yield f"{LAYER}.{name}.bias", Place(rows=every)


def _norms(config: ModelConfig) -> Iterator[tuple[str, Place]]:
    """The norms of a layer and their readers. Folding knows them."""
    latents = {} if config.mla is None else {"q_a": config.mla.q_lora_rank, "kv_a": config.mla.kv_lora_rank}
    for fold in FOLDS:
        if fold.through is not None or not fold.source.endswith("layernorm.weight"):
            continue
        latent = fold.source.rpartition(".self_attn.")[2].removesuffix("_layernorm.weight")
        size = latents.get(latent, config.hidden_size)
        if size:
            yield fold.source, Place(is_norm=True)
            for reader in fold.readers:
                columns = Channels(_one_block(size), None if latent in latents else RESIDUAL)
                yield reader, Place(columns=columns, norm=fold.source)
    for latent, name in (("q_a", "q_a_proj"), ("kv_a", "kv_a_proj_with_mqa")):
        if size := latents.get(latent):
            yield f"{LAYER}.self_attn.{name}.weight", Place(rows=Channels(_one_block(size)))


def _heads(config: ModelConfig) -> Iterator[tuple[str, Place]]:
    """Values of each head, which attention averages over positions; keys keep their channels."""
    outputs = np.arange(config.attention_out_size).reshape(config.num_heads, -1)
    yield f"{LAYER}.self_attn.o_proj.weight", Place(columns=Channels(outputs, VALUES))
    if config.mla is not None:
        rows = np.arange(config.kv_b_size).reshape(config.num_heads, -1)[:, present(config.mla).qk_nope_head_dim :]
        yield f"{LAYER}.self_attn.kv_b_proj.weight", Place(rows=Channels(rows, VALUES))
        return
    rows = np.arange(config.kv_size).reshape(config.num_kv_heads, -1)
    for kind in ("weight", "bias"):
        yield f"{LAYER}.self_attn.v_proj.{kind}", Place(rows=Channels(rows, VALUES))


def _down_projs(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, Place]]:
    for name in DOWN_PROJS:
        row = f"{LAYER}.{name}.weight"
        if row in shapes:
            yield row, Place(columns=Channels(_one_block(shapes[row][1])))


def _one_block(size: int) -> np.ndarray:
    return np.arange(size)[None]
