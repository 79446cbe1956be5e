"""Stage: the folder in which a model's quantized layers wait until all are done."""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors import safe_open

from quant.atomic import fsync
from quant.calibrated import CalibrationKey, ExpertTokens
from quant.errors import InputError
from quant.json_data import JsonData
from quant.present import present
from quant.qtensor import QTensor
from quant.safetensors.writer import save_arrays
from quant.source import SharedInfo, TensorInfo
from quant.stats import KVStats

STATE = "state.json"
TENSORS = "tensors-{}.safetensors"
LOCK = "lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedTensor(JsonData):
    """The file of a staged tensor's arrays, and all that makes them a tensor again.

    step     whose file holds the arrays
    shared   (name, shape, dtype)
    """

    step: int
    format: str
    shape: tuple[int, ...]
    size_bytes: int
    parts: tuple[str, ...]
    shared: tuple[tuple[str, tuple[int, ...], str], ...]

    @classmethod
    def of(cls, qtensor: QTensor, step: int) -> "StagedTensor":
        info = TensorInfo.of(qtensor)
        return cls(
            step=step,
            format=info.format,
            shape=info.shape,
            size_bytes=info.size_bytes,
            parts=tuple(qtensor.parts),
            shared=tuple((shared.name, shared.shape, shared.dtype) for shared in info.shared),
        )

    @property
    def info(self) -> TensorInfo:
        shared = tuple(SharedInfo(name, tuple(shape), dtype) for name, shape, dtype in self.shared)
        return TensorInfo(self.shape, self.format, self.size_bytes, shared)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNotes(JsonData):
    """All that later steps and the manifest need to know of earlier steps.

    kv_absmax   per decoder layer: the ranges of keys, and of values, [kv heads][channels] each
    experts     layer -> tokens that reached its experts
    remarks     name of a weight -> remark of its method
    """

    kv_absmax: tuple[tuple[list[list[float]], list[list[float]]], ...] = ()
    experts: Mapping[str, ExpertTokens] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageState(JsonData):
    """The state file. num_done: steps that count"""

    key: CalibrationKey
    num_done: int = 0
    notes: StageNotes = StageNotes()
    tensors: Mapping[str, StagedTensor] = field(default_factory=dict)


class Stage:
    """Quantized tensors in steps: one for each decoder layer, one for the tensors after them.

    A step counts when `commit` has returned: its tensors are on the disk and the state file names it. Whatever a
    killed run left of a later step is written again.

    key       all that decides these bytes
    num_done  steps that are done
    """

    def __init__(self, folder: Path, state: StageState) -> None:
        self.folder = folder
        self.key = state.key
        self.num_done = state.num_done
        self.notes = state.notes
        self._tensors = dict(state.tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def info(self, name: str) -> TensorInfo:
        return self._tensors[name].info

    @property
    def kv_stats(self) -> list[KVStats]:
        """Statistics of every decoder layer; empty if no layer's keys and values were seen."""
        rows = self.notes.kv_absmax
        return [KVStats(*(np.array(absmax, dtype=np.float32) for absmax in row)) for row in rows]

    def read(self, name: str) -> QTensor:
        row = self._tensors[name]
        with safe_open(self.folder / TENSORS.format(row.step), "np") as file:
            parts = {part: file.get_tensor(f"{name} {part}") for part in row.parts}
            shared = {part: file.get_tensor(f"{name} {part}") for part, _, _ in row.shared}
        return QTensor(row.format, row.shape, parts, shared)

    def commit(self, tensors: Mapping[str, QTensor], notes: StageNotes | None = None) -> None:
        """The next step is done and made these tensors; nothing of it counts until this returns.

        notes    those of all steps so far; None: as they were
        """
        path = self.folder / TENSORS.format(self.num_done)
        arrays = {}
        for name, qtensor in tensors.items():
            parts = qtensor.parts | qtensor.shared
            arrays |= {f"{name} {part}": np.ascontiguousarray(array) for part, array in parts.items()}
            self._tensors[name] = StagedTensor.of(qtensor, self.num_done)
        save_arrays(arrays, path)
        fsync(path)
        self.notes = notes or self.notes
        self.num_done += 1
        self._write_state()

    def _write_state(self) -> None:
        state = StageState(key=self.key, num_done=self.num_done, notes=self.notes, tensors=self._tensors)
        temp = self.folder / f"{STATE}.tmp"
        temp.write_text(json.dumps(state.to_json()), encoding="utf-8")
        fsync(temp)
        os.replace(temp, self.folder / STATE)


def stage_path(out: Path) -> Path:
    """The folder next to `out` in which it is made."""
    return out.with_name(f".{out.name}.stage")


def steps_done(folder: Path) -> int:
    """Steps of a killed run in `folder`; 0 if it left nothing."""
    state = _read_state(folder)
    return 0 if state is None else state.num_done


def read_stage(folder: Path) -> Stage:
    """The Stage that another process has in `folder`, to read the steps that are done."""
    return Stage(folder, present(_read_state(folder)))


@contextmanager
def open_stage(folder: Path, key: CalibrationKey, *, resume: bool = False) -> Iterator[Stage]:
    """Yields the Stage in `folder`, continued from a killed run's files there, or fresh.

    It is gone when the block ends well, and when it ends in an InputError, which another try would end in too.
    Any other end of a run (a kill, Ctrl-C, a full disk) leaves it for --resume.

    resume   continue an old stage; without it an old stage is discarded
    raises   InputError for a stage of another model, recipe, calibration or version, or one that is in use
    """
    folder.mkdir(exist_ok=True)
    with _locked(folder):
        state = _read_state(folder) if resume else None
        if state is None:
            _clear(folder)
            state = StageState(key=key)
        elif unlike := key.unlike(state.key):
            raise InputError(f"{folder} was begun with another {', '.join(unlike)}; start again without --resume")
        try:
            yield Stage(folder, state)
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


def _read_state(folder: Path) -> StageState | None:
    """None if nothing was done yet. raises InputError for the state of another version"""
    path = folder / STATE
    try:
        return StageState.from_json(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None
    except ValueError as error:
        raise InputError(f"{folder} was begun by another version ({error}); start again without --resume") from error


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != LOCK:
            path.unlink()
