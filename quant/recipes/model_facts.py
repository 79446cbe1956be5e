"""The few facts about a model that decide a mix."""

from dataclasses import dataclass

from quant.recipes.roles import Role, place_of
from quant.source import Source


@dataclass(frozen=True, slots=True)
class ModelFacts:
    num_layers: int
    grouped_kv: bool  # fewer key-value heads than query heads
    tied: bool  # the embedding is also the output head


def facts_of(source: Source) -> ModelFacts:
    config = source.config
    num_heads = config.get("num_attention_heads")
    places = [place_of(name) for name in source.tensors]
    return ModelFacts(
        num_layers=len({place.layer for place in places if place.layer is not None}),
        grouped_kv=config.get("num_key_value_heads", num_heads) != num_heads,
        tied=all(place.role is not Role.HEAD for place in places),
    )
