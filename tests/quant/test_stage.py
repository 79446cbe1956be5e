import errno
import json
from dataclasses import replace

import numpy as np
import pytest

from quant.atomic import check_target
from quant.calibrated import CalibrationKey, ImatrixCalibration
from quant.errors import InputError
from quant.formats import get_format
from quant.qtensor import QTensor
from quant.source import TensorInfo
from quant.stage import STATE, StageNotes, open_stage, stage_path

KEY = CalibrationKey(model="a", recipe="b", calibration=ImatrixCalibration(imatrix="i", sha256="0"))
W8 = get_format("w8").quantize_ref(np.ones((2, 8), np.float32))
SHARED = QTensor("w8", W8.shape, W8.parts, {"g_idx": np.arange(8, dtype=np.int32)})


class Killed(BaseException):
    """An exception that no handler of the code catches."""


def leave(folder, *steps, key=KEY, notes=None):
    """A stage as a kill leaves it after these steps."""
    with pytest.raises(Killed), open_stage(folder, key) as stage:
        for tensors in steps:
            stage.commit(tensors, notes)
        raise Killed


@pytest.fixture
def folder(tmp_path):
    return stage_path(tmp_path / "model.gguf")


def test_tensors_come_back_as_they_were(folder):
    with open_stage(folder, KEY) as stage:
        stage.commit({"x": W8, "y": SHARED})
        assert "x" in stage and "z" not in stage
        for name, want in (("x", W8), ("y", SHARED)):
            got = stage.read(name)
            assert stage.info(name) == TensorInfo.of(want) == TensorInfo.of(got)
            for part, array in (want.parts | want.shared).items():
                assert np.array_equal((got.parts | got.shared)[part], array)
    assert not folder.exists()


def test_resume_goes_on_after_the_last_step(folder):
    leave(folder, {"x": W8}, {"y": W8}, notes=StageNotes(remarks={"x": "seen"}))
    with open_stage(folder, KEY, resume=True) as stage:
        assert stage.num_done == 2 and stage.notes == StageNotes(remarks={"x": "seen"}) and "y" in stage
        assert np.array_equal(stage.read("y").parts["weight_packed"], W8.parts["weight_packed"])


def test_resume_without_a_stage_starts(folder):
    with open_stage(folder, KEY, resume=True) as stage:
        assert stage.num_done == 0


def test_an_old_stage_is_discarded_without_resume(folder):
    leave(folder, {"x": W8})
    with open_stage(folder, KEY) as stage:
        assert stage.num_done == 0 and "x" not in stage


def test_a_stage_of_something_else_is_refused_and_kept(folder):
    leave(folder, {"x": W8})
    with pytest.raises(InputError, match="begun with another recipe; start again without --resume"):
        with open_stage(folder, replace(KEY, recipe="c"), resume=True):
            raise AssertionError("not reached")
    with open_stage(folder, KEY, resume=True) as stage:
        assert stage.num_done == 1


def test_a_half_written_step_does_not_count(folder):
    leave(folder, {"x": W8})
    (folder / "tensors-1.safetensors").write_bytes(b"half")
    (folder / f"{STATE}.tmp").write_text("{")
    with open_stage(folder, KEY, resume=True) as stage:
        assert stage.num_done == 1
        stage.commit({"y": W8})
        assert stage.read("y").format == "w8"


def test_two_runs_at_once(folder):
    with open_stage(folder, KEY):
        with pytest.raises(InputError, match="another run makes the same artifact"):
            with open_stage(folder, KEY):
                raise AssertionError("not reached")


@pytest.mark.parametrize(
    "error, kept",
    [
        pytest.param(InputError("NaN"), False, id="bad input"),
        pytest.param(KeyboardInterrupt(), True, id="interrupted"),
        pytest.param(OSError(errno.ENOSPC, "full"), True, id="full disk"),
    ],
)
def test_an_error_leaves_only_a_useful_stage(folder, error, kept):
    with pytest.raises(InputError if isinstance(error, OSError) else type(error)):
        with open_stage(folder, KEY) as stage:
            stage.commit({"x": W8})
            raise error
    assert (folder / STATE).exists() == kept
    assert not kept or json.loads((folder / STATE).read_text())["num_done"] == 1


def test_a_stage_outlives_an_artifact_that_the_disk_has_no_room_for(folder):
    with pytest.raises(InputError, match="bytes are needed"), open_stage(folder, KEY) as stage:
        stage.commit({})
        check_target(folder.with_name("m.gguf"), lambda path: False, needed_bytes=1 << 62)
    with open_stage(folder, KEY, resume=True) as stage:
        assert stage.num_done == 1


def test_tensors_are_on_the_disk_before_the_state_names_them(folder, monkeypatch):
    """A system crash may keep the rename and lose data that was not flushed before it."""
    done = []
    monkeypatch.setattr("quant.stage.fsync", lambda path: done.append(path.name))
    monkeypatch.setattr("quant.stage.os.replace", lambda old, new: done.append(f"{old.name} -> {new.name}"))
    with open_stage(folder, KEY) as stage:
        stage.commit({"x": W8})
    assert done == ["tensors-0.safetensors", f"{STATE}.tmp", f"{STATE}.tmp -> {STATE}"]
