"""Progress of long work."""

from collections.abc import Callable

Progress = Callable[[int, int, str], None]  # (done, total, work in progress)
