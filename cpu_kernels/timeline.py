"""Where the time of a thread goes: the timeline that csrc/timeline.h records."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from cpu_kernels._ext import timeline_begin, timeline_end, timeline_go_to, timeline_parts


class Timeline:
    """Records the parts of this thread's time until the block ends. Each moment belongs to one part.

    cpu_time  the time that the thread is on a processor instead of wall time; for busy machines, and one thread
    """

    def __init__(self, cpu_time: bool = False) -> None:
        self.cpu_time = cpu_time

    def __enter__(self) -> Self:
        timeline_begin(self.cpu_time)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        timeline_end()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """The block is part `name`; `python` comes after it. raises ValueError for an unknown part"""
        timeline_go_to(name)
        try:
            yield
        finally:
            timeline_go_to("python")

    def seconds(self) -> Mapping[str, float]:
        """Seconds of each part since the start or the last call."""
        return timeline_parts()
