"""A frame's columns as lists, each made when it is first asked for, and parts of them."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


class Lists(Mapping[str, list[Any]]):
    """name -> the values of that column, as Python's own."""

    def __init__(self, frame: "pd.DataFrame") -> None:
        self.frame = frame
        self.made: dict[str, list[Any]] = {}

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self.made:
            self.made[name] = self.frame[name].tolist()
        return self.made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.frame)

    def __len__(self) -> int:
        return self.frame.shape[1]


class Part(Mapping[str, list[Any]]):
    """Rows `start` to `end` of lists."""

    def __init__(self, whole: Mapping[str, list[Any]], start: int, end: int) -> None:
        self.whole, self.start, self.end = whole, start, end

    def __getitem__(self, name: str) -> list[Any]:
        return self.whole[name][self.start : self.end]

    def __iter__(self) -> Iterator[str]:
        return iter(self.whole)

    def __len__(self) -> int:
        return len(self.whole)
