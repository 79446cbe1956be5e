"""Panics of Rust libraries as errors: PyO3 raises them as BaseException, which passes every `except Exception`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def panics_as(make: Callable[[str], Exception]) -> Iterator[None]:
    """Raise `make` of the message if a Rust library panics inside the block, or raises an error without a type.

    PanicException cannot be imported, so it is known by its name. A file causes a panic by a regular expression that
    gives up. An unknown token that the vocabulary lacks makes `tokenizers` raise a bare Exception.
    """
    try:
        yield
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise make(str(error)) from None
