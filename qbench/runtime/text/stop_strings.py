"""Strings that end a text, found as the text streams; no part of them is ever given out."""

from collections.abc import Sequence

from qbench.runtime.text.tokenizer import TextStream, check_utf8
from quant.errors import InputError


class StopStrings:
    """Text passes through `push`; text that may still become a stop string is held back until that is certain.

    The text ends before the first stop string to be complete; of those complete at once, before the longest. So the
    output does not depend on how the text is cut into pieces.

    stopped   whether a stop string came; then it and all after it are left out
    raises    InputError for a stop string that is empty or not UTF-8
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if not all(stops):
            raise InputError("a stop string is empty, expected at least one character")
        for stop in stops:
            check_utf8(stop)
        self.stops = tuple(stops)
        self.stopped = False
        self._held = ""

    def push(self, piece: str) -> str:
        """The text that became certain."""
        if self.stopped:
            return ""
        text = self._held + piece
        ends = [(start + len(stop), start) for stop in self.stops if (start := text.find(stop)) >= 0]
        if ends:
            self.stopped, self._held = True, ""
            return text[: min(ends)[1]]
        certain = len(text) - max((_overlap(text, stop) for stop in self.stops), default=0)
        self._held = text[certain:]
        return text[:certain]

    def flush(self) -> str:
        """The text held back, at the end of the text."""
        held, self._held = self._held, ""
        return held


class StoppingStream:
    """Text of tokens as they arrive, until a stop string."""

    def __init__(self, stream: TextStream, stops: Sequence[str]) -> None:
        self.stream = stream
        self.stops = StopStrings(stops)

    @property
    def stopped(self) -> bool:
        return self.stops.stopped

    def push(self, token: int) -> str:
        """The new text, or "" while a character is incomplete or may belong to a stop string."""
        return self.stops.push(self.stream.push(token))

    def flush(self) -> str:
        """The text held back at the end."""
        return self.stops.push(self.stream.flush()) + self.stops.flush()


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` begin `stop`."""
    sizes = range(min(len(text), len(stop) - 1), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)
