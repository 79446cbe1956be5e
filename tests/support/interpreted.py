"""A process whose Triton interprets kernels: that is chosen when Triton is imported, for a whole process."""

import json
import multiprocessing
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import triton

# Triton 3.6 turns a loop's bound into an int by a conversion of arrays that NumPy 2.4 dropped.
INTERPRETER_IS_BROKEN = triton.__version__ < "3.7" and np.lib.NumpyVersion(np.__version__) >= "2.4.0"


# Room for the tensors of the largest test and the semaphores of the process pool.
SHARED_MEMORY, SHARED_BYTES = Path("/dev/shm"), 64 << 20


@contextmanager
def interpreting_process() -> Iterator[ProcessPoolExecutor]:
    """The process; a skip if there is no room for the tensors that it shares with this one."""
    if SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free < SHARED_BYTES:
        pytest.skip("Triton's interpreter shares tensors in /dev/shm, which has less than 64 MiB left")
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with mock.patch.dict(os.environ, TRITON_INTERPRET="1", PYTHONWARNINGS="ignore"):
            pool.submit(int).result()  # starts the process while the variable is set
        yield pool


def json_of(words: Sequence[str]) -> dict:
    """`rows_of` of a command that prints one row"""
    (row,) = rows_of(words)
    return row


def rows_of(words: Sequence[str]) -> list[dict]:
    """The output of `qbench WORDS`, a row of JSON per line; to be called in an interpreting process.

    raises   RuntimeError if it fails
    """
    from qbench.cli.main import main

    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        status = main(list(words))
    if status != 0:
        raise RuntimeError(err.getvalue())
    return [json.loads(line) for line in out.getvalue().splitlines()]
