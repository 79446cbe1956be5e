"""Ranks of one host meet in a file of their user: nobody else speaks in the name of a rank."""

import os
import stat
from datetime import timedelta

import pytest
import torch.distributed as dist
from support.launched_ranks import run_ranks

from qbench.runtime.parallel import meeting
from qbench.runtime.parallel.meeting import STALE_S, open_private_store, private_folder
from quant.errors import InputError

# Rank 1 also plays the attacker, who reaches the port of the rendezvous and knows the names of the keys.
FORGED = """
import os, sys
from datetime import timedelta
import torch.distributed as dist
from qbench.runtime.parallel.meeting import Meeting
rank = int(sys.argv[1])
meeting = Meeting(rank, 2, 60)
if rank == 1:
    attacker = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    for prefix in ("", "/", "/worker/attempt_0/"):
        attacker.set(f"{prefix}end/1", "rank 1: forged")
        attacker.set(f"{prefix}1/turn/1", "forged")
print(meeting.tell("turn", f"of rank {rank}"), meeting.last_words(1), meeting.has_ended(1))
meeting.part()
"""


def test_a_stranger_at_the_port_ends_no_run(tmp_path):
    here = f"import tempfile\ntempfile.tempdir = {str(tmp_path)!r}\n"
    ends = run_ranks(("0",), ("1",), code=here + FORGED)
    assert [end.status for end in ends] == [0, 0], ends[0].err
    assert {end.out for end in ends} == {"['of rank 0', 'of rank 1'] None False\n"}
    (folder,) = tmp_path.iterdir()
    assert not [*folder.iterdir()], "the last rank removes the file"


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(meeting.tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path / f"qbench-ranks-{os.geteuid()}"


def public_store(**words: str):
    store = dist.HashStore()
    store.set_timeout(timedelta(seconds=0.2))
    for key, word in words.items():
        store.set(key.replace("_", "-"), word)
    return store


def test_only_the_user_reads_the_file(own_folder):
    public = public_store()
    one, other = (open_private_store(public, rank, 2, 5) for rank in (0, 1))
    one.set("word", "x")
    assert other.get("word") == b"x"
    (path,) = own_folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(own_folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["../../etc/passwd", "f" * 32, "", "\x1b[31m"], ids=ascii)
def test_a_wrong_name_is_refused(own_folder, name):
    with pytest.raises(InputError, match="rank 0 names no file in"):
        open_private_store(public_store(private_store=name), 1, 2, 5)


def test_no_name_in_time(own_folder):
    with pytest.raises(InputError, match=r"rank 0 did not join within 0\.2 s"):
        open_private_store(public_store(), 1, 2, 0.2)


@pytest.mark.parametrize("kind", ["open to others", "link", "file"])
def test_a_folder_of_others_is_refused(own_folder, kind):
    if kind == "open to others":
        own_folder.mkdir()
        own_folder.chmod(0o755)
    elif kind == "link":
        (own_folder.parent / "elsewhere").mkdir(0o700)
        own_folder.symlink_to("elsewhere")
    else:
        own_folder.touch(0o700)
    with pytest.raises((InputError, FileExistsError)):
        private_folder()


def test_files_of_killed_runs_are_removed_after_a_week(own_folder):
    folder = private_folder()
    for name in ("old", "new"):
        (folder / name).touch()
    old = (folder / "old").stat().st_mtime - STALE_S - 1
    os.utime(folder / "old", (old, old))
    store = open_private_store(public_store(), 0, 1, 5)
    assert not (folder / "old").exists() and (folder / "new").exists()
    del store
