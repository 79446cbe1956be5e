"""Sizes of a model's tensors: bytes, weights, and true bits per weight."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod

from quant.json_data import JsonData
from quant.models import EMBEDDING, HEAD, POSITIONS
from quant.source import TensorInfo

PARTS = ("embedding", "head", "linears", "vectors")


@dataclass(frozen=True, slots=True)
class SizeSummary(JsonData):
    """True bits per weight, all stored bits over all weights, as a whole and by part.

    A part without a tensor has None, such as the head that shares the embedding's bytes.
    """

    size_bytes: int
    num_weights: int
    bits_per_weight: float | None
    bits_per_weight_by_part: dict[str, float | None]


def size_summary(tensors: Mapping[str, TensorInfo]) -> SizeSummary:
    """The size of the tensors together."""
    parts: dict[str, list[TensorInfo]] = {part: [] for part in PARTS}
    for name, info in tensors.items():
        parts[_part(name, info)].append(info)
    return SizeSummary(
        size_bytes=sum(info.size_bytes for info in tensors.values()),
        num_weights=num_weights(tensors),
        bits_per_weight=_bits_per_weight(tensors.values()),
        bits_per_weight_by_part={part: _bits_per_weight(infos) for part, infos in parts.items()},
    )


def num_weights(tensors: Mapping[str, TensorInfo]) -> int:
    """Weights of all tensors; a tied head counts once."""
    return sum(prod(info.shape) for info in tensors.values())


def _part(name: str, info: TensorInfo) -> str:
    """vectors: norms and biases."""
    parts = {EMBEDDING: "embedding", POSITIONS: "embedding", HEAD: "head"}
    return parts.get(name, "linears" if len(info.shape) > 1 else "vectors")


def _bits_per_weight(infos: Collection[TensorInfo]) -> float | None:
    if not infos:
        return None
    return 8 * sum(info.size_bytes for info in infos) / sum(prod(info.shape) for info in infos)
