"""Panics of Rust libraries as errors: PyO3 raises them as BaseException, which passes every `except Exception`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def panics_as(make: Callable[[str], Exception]) -> Iterator[None]:
    """Raise `make` of the message of a panic inside the block.

    PanicException cannot be imported, so it is known by its name. A tokenizer whose regular expression gives up
    is how a file causes one.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise make(str(error)) from None
