"""How work that takes long tells how far it is."""

from collections.abc import Callable

Progress = Callable[[int, int, str], None]  # (done, total, what is being done)
