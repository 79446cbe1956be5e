"""Code that runs on the nodes of a Ray cluster: a case, and the driver's questions before it places one."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from qbench.run.case import Case
from qbench.sweeps.case_runner import CaseRunner, Outcome
from quant.errors import InputError

# A worker that lost its driver holds its folder until it is killed: seconds.
LOCK_S = 30.0


def has(path: str, folder: str) -> bool:
    """Whether this node has a file at `path`, which begins from `folder` if it is relative."""
    return (Path(folder) / Path(path).expanduser()).exists()


def run_case(case: Case, slot: str, folder: str, worker: Sequence[str]) -> Outcome:
    """The outcome of the case, measured by this node.

    slot      which folder of this node's temporary one it may use: no two cases have the same at a time
    folder    the working directory of the driver, which relative paths of a case begin from, if it exists here too
    """
    if Path(folder).is_dir():
        os.chdir(folder)
    with own_folder(slot) as own:
        runner = CaseRunner(own / "artifacts", own / "tmp", worker)
        try:
            return runner.run(case, lambda stage, state: None)
        finally:
            runner.close()


@contextmanager
def own_folder(slot: str) -> Iterator[Path]:
    """The slot's folder: artifacts and the reference's logits of earlier cases are kept, unfinished files are removed.

    raises   InputError where another process keeps it
    """
    folder = sweeps_folder() / slot
    for part in ("artifacts", "tmp"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        take(descriptor, folder)
        for left in (folder / "tmp").iterdir():
            if left.is_dir():
                shutil.rmtree(left)
            elif left.name.startswith("."):
                left.unlink()
        yield folder
    finally:
        os.close(descriptor)


def sweeps_folder() -> Path:
    """Folder in which this user's sweeps keep their files on this node."""
    return Path(tempfile.gettempdir()) / f"qbench-ray-{os.getuid()}"


def clean(sweep: str) -> None:
    """Remove the files that the cases of a sweep left on this node."""
    shutil.rmtree(sweeps_folder() / sweep, ignore_errors=True)


def take(descriptor: int, folder: Path) -> None:
    """The lock of the folder, waited for."""
    give_up = time.monotonic() + LOCK_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up:
                raise InputError(f"{folder}: another sweep measures there; wait for it to end") from None
            time.sleep(0.1)
