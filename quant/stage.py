"""Stage: the folder in which a model's quantized layers wait until all are done."""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from quant.atomic import fsync
from quant.errors import InputError
from quant.qtensor import QTensor
from quant.safetensors.arrays import save_arrays
from quant.source import SharedInfo, TensorInfo
from quant.stats import KVStats

STATE = "state.json"
TENSORS = "tensors-{}.safetensors"
LOCK = "lock"


class Stage:
    """Quantized tensors a step at a time: one for each decoder layer, one for what stands after them.

    A step counts when `commit` has returned: its tensors are on the disk and the state file names it. Whatever a
    killed run left of a later step is written again.

    key       what makes these bytes: equal keys, equal bytes
    num_done  steps that are done
    notes     what later steps and the manifest need to know of earlier ones
    """

    def __init__(self, folder: Path, key: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        self.folder = folder
        self.key = dict(key)
        self.num_done: int = state["num_done"]
        self.notes: dict[str, Any] = state["notes"]
        self._tensors: dict[str, dict[str, Any]] = state["tensors"]  # name -> {step, format, shape, ...}

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def info(self, name: str) -> TensorInfo:
        row = self._tensors[name]
        shared = tuple(SharedInfo(part, tuple(shape), dtype) for part, shape, dtype in row["shared"])
        return TensorInfo(tuple(row["shape"]), row["format"], row["size_bytes"], shared)

    @property
    def kv_stats(self) -> list[KVStats]:
        """Of every decoder layer; empty where no layer's keys and values were seen."""
        rows = self.notes.get("kv_absmax", [])
        return [KVStats(*(np.array(absmax, dtype=np.float32) for absmax in row)) for row in rows]

    def read(self, name: str) -> QTensor:
        row = self._tensors[name]
        with safe_open(self.folder / TENSORS.format(row["step"]), "np") as file:
            parts = {part: file.get_tensor(f"{name} {part}") for part in row["parts"]}
            shared = {part: file.get_tensor(f"{name} {part}") for part, _, _ in row["shared"]}
        return QTensor(row["format"], tuple(row["shape"]), parts, shared)

    def commit(self, tensors: Mapping[str, QTensor], notes: Mapping[str, Any] | None = None) -> None:
        """The next step is done and made these tensors; nothing of it counts until this returns."""
        path = self.folder / TENSORS.format(self.num_done)
        arrays = {}
        for name, qtensor in tensors.items():
            parts = qtensor.parts | qtensor.shared
            arrays |= {f"{name} {part}": np.ascontiguousarray(array) for part, array in parts.items()}
            self._tensors[name] = {"step": self.num_done, **_row(qtensor)}
        save_arrays(arrays, path)
        fsync(path)
        self.notes |= notes or {}
        self.num_done += 1
        self._write_state()

    def _write_state(self) -> None:
        state = {"key": self.key, "num_done": self.num_done, "notes": self.notes, "tensors": self._tensors}
        temp = self.folder / f"{STATE}.tmp"
        temp.write_text(json.dumps(state))
        fsync(temp)
        os.replace(temp, self.folder / STATE)


def _row(qtensor: QTensor) -> dict[str, Any]:
    """What the state file says of a tensor."""
    info = TensorInfo.of(qtensor)
    return {
        "format": info.format,
        "shape": list(info.shape),
        "size_bytes": info.size_bytes,
        "parts": list(qtensor.parts),
        "shared": [[shared.name, list(shared.shape), shared.dtype] for shared in info.shared],
    }


def stage_path(out: Path) -> Path:
    """The folder beside `out` in which it is made."""
    return out.with_name(f".{out.name}.stage")


def steps_done(folder: Path) -> int:
    """Of what a killed run left in `folder`; 0 where it left nothing."""
    state = _read_state(folder)
    return 0 if state is None else state["num_done"]


@contextmanager
def open_stage(folder: Path, key: Mapping[str, Any], *, resume: bool = False) -> Iterator[Stage]:
    """Yields the Stage in `folder`, continued from what a killed run left there, or fresh.

    It is gone when the block ends well, and when it ends in an InputError, which another try would end in too.
    What else may end a run (a kill, Ctrl-C, what a disk refuses) leaves it for --resume.

    resume   continue what is there; without it an old stage is discarded
    raises   InputError for a stage of another model, recipe, calibration or version, or one that is in use
    """
    folder.mkdir(exist_ok=True)
    with _locked(folder):
        key = json.loads(json.dumps(key))  # as it will come back
        state = _read_state(folder) if resume else None
        if state is None:
            _clear(folder)
            state = {"num_done": 0, "notes": {}, "tensors": {}}
        elif state["key"] != key:
            unlike = ", ".join(name for name in {**key, **state["key"]} if key.get(name) != state["key"].get(name))
            raise InputError(f"{folder} was begun with another {unlike}; start again without --resume")
        try:
            yield Stage(folder, key, state)
        except InputError as error:
            if not isinstance(error.__cause__, OSError):
                shutil.rmtree(folder, ignore_errors=True)
            raise
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise InputError(f"{folder}: the disk is full; free some space, then continue with --resume") from error
            raise
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder}: another run makes the same artifact; wait for it") from None
        yield
    finally:
        os.close(descriptor)


def _read_state(folder: Path) -> dict[str, Any] | None:
    """None where nothing was done yet."""
    path = folder / STATE
    return json.loads(path.read_text()) if path.exists() else None


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != LOCK:
            path.unlink()
