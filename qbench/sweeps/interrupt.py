"""Ctrl-C as a wish: the first one lets the running case end, a second one does not."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def gentle_interrupt(on_first: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether SIGINT came. The first one calls on_first, the next is as it always was.

    Nothing changes outside the main thread, since signals do not arrive there.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = signal.getsignal(signal.SIGINT)

    def note(number, frame) -> None:
        signal.signal(signal.SIGINT, before)
        asked.set()
        on_first()

    signal.signal(signal.SIGINT, note)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
