import errno
import os
import platform
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from quant import atomic
from quant.atomic import atomic_dir, atomic_file
from quant.errors import InputError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_file_appears_when_the_block_ends(tmp_path):
    out = tmp_path / "out"
    with atomic_file(out) as temp:
        temp.write_text("new")
        assert not out.exists() and temp.parent == tmp_path
    assert out.read_text() == "new" and names(tmp_path) == ["out"]


@pytest.mark.parametrize("error", [RuntimeError("x"), KeyboardInterrupt(), InputError("x")], ids=lambda e: repr(e))
def test_failure_leaves_the_old_file_and_nothing_else(tmp_path, error):
    out = tmp_path / "out"
    out.write_text("old")
    with pytest.raises(type(error)), atomic_file(out) as temp:
        temp.write_text("half")
        raise error
    assert out.read_text() == "old" and names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    "error, words",
    [
        pytest.param(OSError(errno.ENOSPC, "No space left on device"), "disk is full", id="full disk"),
        pytest.param(OSError("100 requested and 10 written"), "is the disk full", id="short tofile"),
        pytest.param(PermissionError(errno.EACCES, "Permission denied"), "permission denied", id="permission"),
    ],
)
def test_write_errors_become_one_line(tmp_path, error, words):
    with pytest.raises(InputError, match=words) as caught, atomic_file(tmp_path / "out") as temp:
        temp.write_text("half")
        raise error
    assert "\n" not in str(caught.value) and names(tmp_path) == []


def test_fsync_that_finds_the_disk_full(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(InputError, match="disk is full"), atomic_file(tmp_path / "out") as temp:
        temp.write_text("x")
    assert names(tmp_path) == []


def test_file_size_limit_of_the_kernel(tmp_path):
    """A real short write: the kernel refuses the 65th kilobyte."""
    program = (
        "import numpy, pathlib, sys\n"
        "from quant.atomic import atomic_file\n"
        "from quant.errors import InputError\n"
        "try:\n"
        "    with atomic_file(pathlib.Path(sys.argv[1])) as temp, temp.open('wb') as file:\n"
        "        numpy.zeros(10**6).tofile(file)\n"
        "except InputError as error:\n"
        "    sys.exit(f'InputError {error}')\n"
    )

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))

    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "out")], preexec_fn=limit, capture_output=True, text=True
    )
    assert done.returncode == 1 and done.stderr.startswith("InputError"), done.stderr
    assert names(tmp_path) == []


def test_missing_folder(tmp_path):
    with pytest.raises(InputError, match="does not exist"), atomic_file(tmp_path / "no" / "out"):
        pass


def test_unwritable_folder(tmp_path, monkeypatch):
    """Root may write anywhere, so the question is answered here rather than by the folder's mode."""
    monkeypatch.setattr(atomic.os, "access", lambda folder, mode: False)
    with pytest.raises(InputError, match="not yours to write to"), atomic_file(tmp_path / "out"):
        pytest.fail("the block must not run")


def test_file_does_not_replace_a_directory(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="something else"), atomic_file(tmp_path / "out"):
        pytest.fail("the block must not run")


def test_directory_replaces_only_an_accepted_one(tmp_path):
    out = tmp_path / "out"
    for content in ("one", "two"):
        with atomic_dir(out, replaces=lambda path: (path / "mark").exists()) as temp:
            (temp / "mark").write_text(content)
        assert (out / "mark").read_text() == content and names(tmp_path) == ["out"]
    (out / "mark").unlink()
    with pytest.raises(InputError, match="something else"), atomic_dir(out, replaces=lambda path: False):
        pytest.fail("the block must not run")


def test_directory_comes_back_when_the_rename_fails(tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mark").write_text("old")
    rename = os.rename

    def fails_for_temp(source, target):
        if ".tmp-" in str(source):
            raise OSError(errno.EIO, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    monkeypatch.setattr(atomic.os, "rename", fails_for_temp)
    with pytest.raises(InputError, match="Input/output error"), atomic_dir(out, replaces=lambda path: True) as temp:
        (temp / "mark").write_text("new")
    assert (out / "mark").read_text() == "old" and names(tmp_path) == ["out"]


def replace_and_die(out, at, can_exchange):
    """In a process of its own that ends without a cleanup before its `at`-th rename, exchange or removal."""
    child = os.fork()
    if child == 0:
        calls = iter(range(1, at + 1))

        def counted(call):
            return lambda *args, **more: os._exit(9) if next(calls, at) == at else call(*args, **more)

        atomic._exchange = counted(atomic._exchange) if can_exchange else lambda one, other: False
        atomic.os.rename, atomic.shutil.rmtree = counted(os.rename), counted(atomic.shutil.rmtree)
        with atomic_dir(out, replaces=Path.is_dir) as temp:
            (temp / "mark").write_text("new")
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(sys.platform != "linux", reason="exchanges names as Linux does")
@pytest.mark.parametrize("at, found", [(1, "old"), (2, "new"), (3, "new")])
def test_a_directory_that_is_replaced_is_never_gone(tmp_path, at, found):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mark").write_text("old")
    assert replace_and_die(out, at, can_exchange=True) == (9 if at < 3 else 0)
    assert (out / "mark").read_text() == found
    with atomic_dir(out, replaces=Path.is_dir) as temp:
        (temp / "mark").write_text("newest")
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("at, found", [(1, "old"), (2, "old"), (3, "new")])
def test_a_directory_that_stepped_aside_comes_back_in_the_next_run(tmp_path, at, found):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mark").write_text("old")
    assert replace_and_die(out, at, can_exchange=False) == 9
    with pytest.raises(RuntimeError), atomic_dir(out, replaces=Path.is_dir):
        raise RuntimeError
    assert (out / "mark").read_text() == found and names(tmp_path) == ["out"]


def test_directory_failure_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), atomic_dir(tmp_path / "out", replaces=lambda path: True) as temp:
        np.zeros(3).tofile(temp / "x")
        raise RuntimeError
    assert names(tmp_path) == []


def test_space_is_checked_before_the_work(tmp_path):
    with pytest.raises(InputError, match="are needed"), atomic_file(tmp_path / "out", needed_bytes=10**18):
        pytest.fail("the block must not run")


@pytest.mark.parametrize(
    "make", [atomic_file, lambda path: atomic_dir(path, replaces=Path.is_dir)], ids=["file", "dir"]
)
def test_leftovers_of_a_killed_process_are_removed_by_the_next(tmp_path, make):
    """Its own number may come again; those of processes that live, and of other machines, stay."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    host = platform.node()
    stay = [f".out.tmp-{host}-{os.getppid()}", f".out.tmp-elsewhere-{gone.pid}", f".other.tmp-{host}-{gone.pid}"]
    for name in (*stay, f".out.tmp-{host}-{gone.pid}"):
        (tmp_path / name).write_text("half")
    (tmp_path / f".out.tmp-{host}-{os.getpid()}").mkdir()
    with make(tmp_path / "out") as temp:
        if temp.is_dir():
            temp = temp / "file"
        temp.write_text("whole")
    assert names(tmp_path) == sorted([*stay, "out"])


@pytest.fixture
def left_by_another_user(tmp_path, monkeypatch):
    """Leaves half a file of a process; in a folder like /tmp only its user may remove it, but root may: so faked."""

    def refuses(path, missing_ok=False):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    def leave(number):
        left = tmp_path / f".out.tmp-{platform.node()}-{number}"
        left.write_text("half")
        monkeypatch.setattr(Path, "unlink", refuses)
        return left

    return leave


def test_a_leftover_of_another_user_stays(tmp_path, left_by_another_user):
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = left_by_another_user(gone.pid)
    with atomic_file(tmp_path / "out") as temp:
        temp.write_text("whole")
    assert names(tmp_path) == sorted([left.name, "out"]) and left.read_text() == "half"


def test_a_leftover_of_another_user_with_the_own_number_is_one_line(tmp_path, left_by_another_user):
    left = left_by_another_user(os.getpid())
    with pytest.raises(InputError, match="permission denied"), atomic_file(tmp_path / "out") as temp:
        assert temp == left
        raise PermissionError(errno.EACCES, "Permission denied")  # as opening that file for writing does
    assert names(tmp_path) == [left.name]
