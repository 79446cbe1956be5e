"""The transform_config of compressed-tensors: Hadamard matrices that turn the inputs of linears in blocks.

Each of its groups names a size ("head_dim"), and the modules whose inputs are multiplied with the matrix while the
model runs ("input"); their stored weights were multiplied with it before ("weight_input").
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from quant.artifacts.layouts.scheme import LINEAR, Targets
from quant.errors import InputError
from quant.formats import Format, TurnedFp4
from quant.json_fields import JsonFields

KEY = "transform_config"
TYPE = "hadamard"
INPUT, WEIGHT = "input", "weight_input"


class Apply(TypedDict):
    targets: list[str]
    location: str
    inverse: bool
    ignore: list[str]


class Transform(TypedDict):
    type: str
    head_dim: int
    apply: list[Apply]


class TransformConfig(TypedDict):
    config_groups: dict[str, Transform]


@dataclass(frozen=True, slots=True)
class Turn:
    """One group as it was read: the size of its matrix, and its modules."""

    size: int
    targets: Targets
    ignored: Targets

    def turns(self, module: str) -> bool:
        return self.ignored.rank(module) is None and self.targets.rank(module) is not None


def transform_config(groups: Iterable[tuple[list[str], Format]], ignored: Sequence[str]) -> TransformConfig | None:
    """The transforms of the groups whose format turns its inputs; None without such a format.

    groups   targets and format of each
    """
    transforms: dict[str, Transform] = {}
    for targets, fmt in groups:
        if isinstance(fmt, TurnedFp4):
            left_out = list(ignored) if targets == [LINEAR] else []
            apply: list[Apply] = [
                {"targets": targets, "location": location, "inverse": location == WEIGHT, "ignore": left_out}
                for location in (INPUT, WEIGHT)
            ]
            transforms[f"had{fmt.block_size}"] = {"type": TYPE, "head_dim": fmt.block_size, "apply": apply}
    return {"config_groups": transforms} if transforms else None


def read_turns(config: Mapping[str, Any], where: str) -> list[Turn]:
    """raises InputError for transforms of another kind"""
    if not config.get(KEY):
        return []
    place = f"{where}: quantization_config's {KEY}"
    groups = JsonFields(config[KEY], place).fields("config_groups")
    named = config[KEY]["config_groups"] if groups is not None else {}
    return [_read_turn(JsonFields(group, place), group, place) for group in named.values()]


def _read_turn(fields: JsonFields, group: Mapping[str, Any], place: str) -> Turn:
    applied = group.get("apply")
    rows = (
        {str(row.get("location")): row for row in applied if isinstance(row, Mapping)}
        if isinstance(applied, list)
        else {}
    )
    size = fields.count("head_dim")
    same = len({repr((row.get("targets"), row.get("ignore") or [])) for row in rows.values()}) == 1
    is_plain = fields.text("type") == TYPE and not fields.flag("randomize", False) and size is not None
    if not is_plain or size is None or not {INPUT} <= set(rows) <= {INPUT, WEIGHT} or not same:
        raise InputError(
            f"{place} asks for a transform that is not read here; read are Hadamard matrices in blocks (head_dim) of "
            "the inputs of linears and of their weights"
        )
    row = JsonFields(rows[INPUT], place)
    ignored = row.texts("ignore") if rows[INPUT].get("ignore") else []
    return Turn(size, Targets(row.texts("targets"), place), Targets(ignored, place))
