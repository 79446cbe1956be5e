"""Ranks that cannot meet: a port in use, a rank that does not join, other numbers of ranks."""

import json
import socket
import time
from datetime import timedelta
from itertools import count
from types import SimpleNamespace

import pytest
import torch.distributed as dist
from support.launched_ranks import free_port

from qbench.runtime.parallel import meeting as meeting_module
from qbench.runtime.parallel.joined import open_link
from qbench.runtime.parallel.meeting import Meeting, RankError
from quant.errors import InputError


@pytest.fixture
def as_rank_0(monkeypatch):
    """Environment of rank 0 of two, at this port."""

    def set_port(port: int) -> None:
        about = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        for name, value in (about | {"MASTER_PORT": str(port)}).items():
            monkeypatch.setenv(name, value)

    return set_port


def test_a_port_in_use(as_rank_0):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        as_rank_0(port)
        with pytest.raises(InputError, match=f"rank 0 cannot meet the others: 127.0.0.1:{port} is in use by another"):
            Meeting(0, 2, 2)


def test_a_missing_rank_0_is_reported(as_rank_0):
    as_rank_0(free_port())
    with pytest.raises(InputError, match=r"rank 0 cannot meet the others: no answer at 127.0.0.1:"):
        Meeting(0, 2, 1)


@pytest.fixture
def met(as_rank_0, monkeypatch):
    """Rank 0 with a store in which rank 1 has said this, or nothing."""

    def meet(said: list | None) -> Meeting:
        as_rank_0(free_port())
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")  # on two hosts, which share the store of torchrun
        store = dist.HashStore()
        store.set_timeout(timedelta(seconds=0.2))
        if said is not None:
            store.set("host/1", json.dumps(said))
        monkeypatch.setattr(dist, "rendezvous", lambda url, timeout: iter([(store, 0, 2)]))
        return Meeting(0, 2, 0.2)

    return meet


def test_a_rank_that_does_not_join_is_named(met):
    with pytest.raises(InputError, match=r"rank 1 did not join within 0.2 s; start the same number of ranks"):
        met(None)


def test_another_number_of_ranks_is_named(met):
    with pytest.raises(InputError, match="rank 1 on other is one of 3 ranks, rank 0 one of 2; start the same"):
        met(["other", 1, None, 3])


def test_a_rank_at_work_gives_signs(met):
    meeting = met(["other", 1, None, 2])
    with meeting.at_work():
        while meeting.store.get("signs/0") == b"0":
            time.sleep(0.01)


class SlowStore:
    """A value that is there after a hundred looks, and perhaps a new sign of rank 1 at each look."""

    def __init__(self, gives_signs: bool) -> None:
        self.gives_signs, self.looks = gives_signs, 0

    def check(self, keys: list[str]) -> bool:
        self.looks += 1
        (key,) = keys
        return self.looks > 100 and key == "late"

    def get(self, key: str) -> bytes:
        return b"now" if key == "late" else str(self.looks * self.gives_signs).encode()


@pytest.mark.parametrize("gives_signs", [True, False])
def test_a_rank_is_waited_for_as_long_as_it_gives_signs(met, monkeypatch, gives_signs):
    meeting, ticks = met(["other", 1, None, 2]), count()
    clock = SimpleNamespace(monotonic=lambda: next(ticks) / 10, sleep=lambda seconds: None)
    monkeypatch.setattr(meeting_module, "time", clock)  # a tenth of a second per look
    monkeypatch.setattr(meeting, "timeout_s", 1.0)
    monkeypatch.setattr(meeting, "store", SlowStore(gives_signs))
    if gives_signs:
        assert meeting._told("late", 1, 0.0) == "now"
    else:
        with pytest.raises(RankError, match="rank 1 on other did not answer for 1 s"):
            meeting._told("late", 1, 0.0)


def test_shared_memory_of_two_hosts_is_refused(met):
    with pytest.raises(InputError, match=r"link=shm needs memory that all ranks share: the ranks are on .*other"):
        open_link(met(["other", 1, "boot pid:[1] 0", 2]), "shm")
