"""Finding: one thing that is wrong, and where."""

from dataclasses import dataclass

from quant.json_data import JsonData


@dataclass(frozen=True, slots=True)
class Finding(JsonData):
    """check: its name in one of the tables of checks; where: a tensor's canonical name, a layer, or the artifact"""

    check: str
    where: str
    message: str
