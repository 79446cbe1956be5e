"""`Launch`: the samples of fresh processes that a gate compares."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from quant.json_data import JsonData

PEAK = "peak_rss_bytes"
MAX_LAUNCHES = 100  # of one speed; more than anybody waits for


@dataclass(frozen=True, slots=True)
class Launch(JsonData):
    """One process per side: the base's and this tree's, or this tree's alone.

    seconds         phase -> seconds of each round, per side; in JSON each phase is a key
    peak_rss_bytes  per side; None if the processes ran another case before
    """

    seconds: dict[str, list[list[float]]]
    peak_rss_bytes: list[int] | None = None

    def to_json(self) -> dict[str, Any]:
        return self.seconds | ({} if self.peak_rss_bytes is None else {PEAK: self.peak_rss_bytes})

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """raises ValueError for another value than an object"""
        if not isinstance(document, Mapping):
            raise ValueError(f"{cls.__name__}: got {type(document).__name__}, expected an object")
        return cls({key: sides for key, sides in document.items() if key != PEAK}, document.get(PEAK))
