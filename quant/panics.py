"""Panics of Rust libraries as errors: PyO3 raises them as BaseException, which passes every `except Exception`."""

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

STDERR = 2


@contextmanager
def panics_as(make: Callable[[str], Exception]) -> Iterator[None]:
    """Raise `make` of the message if a Rust library panics inside the block, or raises an error without a type.

    PanicException cannot be imported, so it is known by its name. A file causes a panic by a regular expression that
    gives up. An unknown token that the vocabulary lacks makes `tokenizers` raise a bare Exception. Rust reports a panic
    on stderr before PyO3 raises it; in the main thread of a command the report is left out.
    """
    with _held_stderr() as panics:
        try:
            yield
        except BaseException as error:
            if type(error) is not Exception and type(error).__name__ != "PanicException":
                raise
            panics.append(str(error))
            raise make(str(error)) from None


@contextmanager
def _held_stderr() -> Iterator[list[str]]:
    """Keep the bytes that are written to stderr, and write them behind the block without the reports of its panics.

    A descriptor belongs to all threads: only the main thread may hold it, and lines of others wait for one call. The
    main thread of a server runs an event loop, so a server holds nothing. A user who asks for backtraces gets them.
    """
    panics: list[str] = []
    saved = None
    is_main = threading.current_thread() is threading.main_thread() and not _has_event_loop()
    if is_main and os.environ.get("RUST_BACKTRACE", "0") == "0" and hasattr(os, "memfd_create"):
        with suppress(OSError):  # a program may have no stderr
            saved = os.dup(STDERR)
    if saved is None:
        yield panics
        return
    with open(os.memfd_create("stderr"), "w+b", buffering=0) as memory:
        os.dup2(memory.fileno(), STDERR)
        try:
            yield panics
        finally:
            os.dup2(saved, STDERR)
            os.close(saved)
            memory.seek(0)
            if written := memory.read():
                with suppress(OSError), open(STDERR, "wb", closefd=False) as stderr:
                    stderr.write(without_reports(written, panics))


def _has_event_loop() -> bool:
    asyncio = sys.modules.get("asyncio")  # slow to import, and without it there is no loop
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def without_reports(written: bytes, panics: list[str]) -> bytes:
    """The bytes without Rust's reports of panics that have these messages."""
    for panic in panics:
        head, note = rb"\n?thread '[^\n]*' (\(\d+\) )?panicked at [^\n]*:\n", rb"\n(note: run with [^\n]*\n)?"
        written = re.sub(head + re.escape(panic.encode()) + note, b"", written)
    return written
