"""Meeting: the store of torch.distributed in which ranks find each other, exchange facts and leave last words."""

import json
import os
import re
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

from qbench.rendezvous import obstacle_of
from qbench.run.rank_layout import RankError, find_world
from qbench.runtime.parallel.shared_memory import host_identity
from quant.errors import InputError

# After a time-out the ranks that wait for the same one end at about the same moment: so long for their words to come.
GRACE_S = 1.0
POLL_S = 0.02
LOOK_S = 0.2  # from one look at whether the other rank lives to the next
SIGNS = 4  # of life within the longest wait
NAME = re.compile("[0-9a-f]{32}")
KEY = "private-store"
STALE_S = 7 * 86400  # since the last word of a run that was killed, after which its file is removed


class Host(NamedTuple):
    """The process of one rank, and the number of ranks that it expects. identity: as `host_identity`"""

    name: str
    pid: int
    identity: str | None
    num_ranks: int

    @property
    def lives(self) -> bool:
        """Whether the process runs, as far as this host can see."""
        if self.name != socket.gethostname():
            return True
        try:
            return "\nState:\tZ" not in Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        except OSError:
            return False


class Meeting:
    """Names of the ranks, their facts and their last words; nothing here is counted as traffic.

    store      of torch.distributed: a file of this user if all ranks are on one host, else on the host of rank 0
    hosts      of all ranks
    timeout_s  longest wait for another rank
    place      the part of the run that is under way, for messages
    raises     InputError if the ranks do not meet, or expect different numbers of ranks
    """

    _is_private = False  # a store that only processes of this user and host reach

    def __init__(self, rank: int, num_ranks: int, timeout_s: float) -> None:
        self.rank, self.num_ranks, self.timeout_s = rank, num_ranks, timeout_s
        self.place = "at the start"
        self._num_told = self._num_signs = 0
        self._public = self._open_store()  # stays open: rank 0 may be its host
        world = find_world()
        self._is_private = world is not None and world.local_size == world.size
        about = (rank, num_ranks, timeout_s)
        self.store = open_private_store(self._public, *about) if self._is_private else self._public
        self.store.set(f"signs/{rank}", "0")
        here = Host(socket.gethostname(), os.getpid(), host_identity(), num_ranks)
        self.store.set(f"host/{rank}", json.dumps(here))
        self.hosts = [self._host(other) for other in range(num_ranks)]

    def _open_store(self) -> Any:
        import torch.distributed as dist  # slow, and of no use to one rank

        rendezvous = dist.rendezvous  # pyright: ignore[reportPrivateImportUsage]  documented under this name
        try:
            store, _, _ = next(iter(rendezvous("env://", timeout=timedelta(seconds=self.timeout_s))))
        except RuntimeError as error:
            place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
            obstacle = obstacle_of(error, place, "--master-port")
            raise InputError(f"rank {self.rank} cannot meet the others: {obstacle}") from error
        return store

    def _host(self, rank: int) -> Host:
        """raises InputError for a rank that does not join, and for one that expects another number of ranks"""
        try:
            host = Host(*json.loads(self.store.get(f"host/{rank}")))
        except RuntimeError as error:
            raise InputError(
                f"rank {rank} did not join within {self.timeout_s:g} s; start the same number of ranks on all hosts"
            ) from error
        if host.num_ranks != self.num_ranks:
            raise InputError(
                f"rank {rank} on {host.name} is one of {host.num_ranks} ranks, rank {self.rank} one of "
                f"{self.num_ranks}; start the same number on all hosts"
            )
        return host

    def name(self, rank: int) -> str:
        return f"rank {rank} on {self.hosts[rank].name}"

    def tell(self, topic: str, value: str) -> list[str]:
        """The values that all ranks give to one topic, in their order.

        A rank in `at_work` may take any time.

        raises   RankError if a rank ends or is late
        """
        self._num_told += 1  # the same on all ranks, so that a topic may come again
        topic = f"{self._num_told}/{topic}"
        self.store.set(f"{topic}/{self.rank}", value)
        start = time.monotonic()
        return [self._told(f"{topic}/{rank}", rank, start) for rank in range(self.num_ranks)]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Meanwhile a thread shows the ranks that wait for this one that it lives."""
        ended = Event()

        def show() -> None:
            with suppress(RuntimeError):  # the store's host is gone, which the next exchange reports
                while not ended.wait(self.timeout_s / SIGNS):
                    self._num_signs += 1
                    self.store.set(f"signs/{self.rank}", str(self._num_signs))

        thread = Thread(target=show, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _signs(self, rank: int) -> str:
        """The last sign of life of a rank that has joined"""
        return self.store.get(f"signs/{rank}").decode()

    def _told(self, key: str, rank: int, start: float) -> str:
        deadline, look, signs = start + self.timeout_s, 0.0, None
        while (now := time.monotonic()) < deadline:
            try:
                if self.store.check([key]):
                    return self.store.get(key).decode()
                if now >= look:
                    look, newer = now + LOOK_S, self._signs(rank)
                    deadline = deadline if signs in (None, newer) else now + self.timeout_s
                    signs = newer
                    if self.last_words(rank) is not None or self._is_gone(rank):
                        if self.store.check([key]):  # its last word here, just before it ended
                            return self.store.get(key).decode()
                        raise self.error(rank, is_late=False)
            except RuntimeError as error:
                raise self.error(rank, is_late=False) from error
            time.sleep(POLL_S)
        raise self.error(rank, is_late=True)

    def part(self) -> None:
        """Wait for the others; the store's host, rank 0, leaves last, so that nobody asks a store that is gone."""
        self.tell("done", "")
        if self.rank:
            self.store.set(f"parted/{self.rank}", "")
            return
        start = time.monotonic()
        for rank in range(1, self.num_ranks):
            self._told(f"parted/{rank}", rank, start)

    # ---- ranks that end

    def leave(self, message: str) -> None:
        """Leave the message of this rank's error for the others."""
        has_name = message.startswith("rank ")
        try:
            self.store.set(f"end/{self.rank}", message if has_name else f"{self.name(self.rank)}: {message}")
        except RuntimeError:
            return

    def last_words(self, rank: int) -> str | None:
        """The error that ended the rank, if it could leave one."""
        key = f"end/{rank}"
        try:
            return self.store.get(key).decode() if self.store.check([key]) else None
        except RuntimeError:  # the store's host is gone
            return None

    def _is_gone(self, rank: int) -> bool:
        """Whether the rank ended without a word. A file stays when its users end, and reports nothing about them."""
        return self._is_private and not self.hosts[rank].lives

    def has_ended(self, rank: int) -> bool:
        return not self.hosts[rank].lives or self.last_words(rank) is not None

    def error(self, rank: int, is_late: bool) -> RankError:
        """One line on the rank that is missing: its own last words if it left some."""
        words = self.last_words(rank)
        if words is None:
            time.sleep(GRACE_S)
            words = self.last_words(rank)
        if words is not None:
            return RankError(words)
        did = f"did not answer for {self.timeout_s:g} s" if is_late else "ended"
        return RankError(f"{self.name(rank)} {did}, {self.place} of rank {self.rank}; the run is over")

    def who_ended(self) -> str:
        """One line on the rank that made torchrun end this one."""
        others = [rank for rank in range(self.num_ranks) if rank != self.rank]
        words = next((words for rank in others if (words := self.last_words(rank))), None)
        if words is not None:
            return words
        dead = [self.name(rank) for rank in others if not self.hosts[rank].lives]
        return f"{', '.join(dead) or 'torchrun'} ended, {self.place} of rank {self.rank}; the run is over"


def open_private_store(public: Any, rank: int, num_ranks: int, timeout_s: float) -> Any:
    """A FileStore that all ranks of this host share, and that no other user reaches: a file in this user's folder.

    The store that torchrun opens listens on every address, and takes and gives values without a check. Ranks of one
    host use it for one word only, the name of the file; a wrong name ends the run and says nothing in the name of a
    rank.

    public   the store that torchrun opened
    raises   InputError if rank 0 gives no name of a file in time, or the folder belongs to somebody else
    """
    import torch.distributed as dist  # slow, and of no use to one rank

    folder = private_folder()
    if rank == 0:
        _remove_stale(folder)
        name = secrets.token_hex(16)
        os.close(os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        public.set(KEY, name)
    else:
        try:
            name = public.get(KEY).decode(errors="replace")
        except RuntimeError as error:
            raise InputError(
                f"rank 0 did not join within {timeout_s:g} s; start the same number of ranks on all hosts"
            ) from error
        if not NAME.fullmatch(name) or not (folder / name).is_file():
            raise InputError(f"rank 0 names no file in {folder}; is another program at the port of torchrun?")
    store = dist.FileStore(str(folder / name), num_ranks)  # pyright: ignore[reportPrivateImportUsage]  documented so
    store.set_timeout(timedelta(seconds=timeout_s))
    return store


def private_folder() -> Path:
    """The user's own folder below that of temporary files. raises InputError if it belongs to somebody else"""
    folder = Path(tempfile.gettempdir()) / f"qbench-ranks-{os.geteuid()}"
    folder.mkdir(0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise InputError(f"{folder} is not a folder of this user only; remove it, or set TMPDIR to another folder")
    return folder


def _remove_stale(folder: Path) -> None:
    for path in folder.iterdir():
        try:
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()
        except OSError:
            continue
