"""Processes that share a folder of blocks, and those that are killed."""

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from support.disk_blocks import BLOCK, NOTE, PLENTY, block, blocks_of, fill, got, key, open_store, size_of

from qbench.runtime.tiers.block_file import file_bytes


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
    store = open_store(tmp_path)
    fill(store, 1)
    chain = Path(store.path_of(key(1))).parent
    old, new, deleted = chain / ".old", chain / ".new", chain.parent / ".deleted-1-1"
    deleted.mkdir()
    (deleted / "block").write_text("")
    for path in (old, new):
        path.write_text("")
    os.utime(old, (0, 0))
    store = open_store(tmp_path)
    assert not old.exists() and new.exists() and not deleted.exists() and got(store, 1)


class Writer:
    """A process that puts blocks and writes the number of each that is kept into a pipe; a fork, so that it starts at
    once."""

    def __init__(self, folder: Path, limit: int, numbers: list[int]) -> None:
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                store = open_store(folder, limit)
                for number in numbers:
                    if store.put(key(number), block(number), NOTE):
                        os.write(writer, number.to_bytes(4, "little"))
                status = 0
            finally:
                os._exit(status)
        os.close(writer)

    def is_over(self) -> bool:
        pid, self.status = os.waitpid(self.pid, os.WNOHANG)
        return pid != 0

    def acknowledged(self) -> list[int]:
        """All that is in the pipe, up to its end."""
        with open(self.reader, "rb") as pipe:
            return np.frombuffer(pipe.read(), "<i4").tolist()


def test_two_processes_write_evict_and_read_at_once(tmp_path):
    limit = 40 * file_bytes(BLOCK)
    store = open_store(tmp_path, limit)
    orders = [random.Random(seed).sample(range(200), 200) for seed in range(2)]
    writers = [Writer(tmp_path, limit, order) for order in orders]
    num_read, running = 0, list(writers)
    while running:
        running = [writer for writer in running if not writer.is_over()]
        num_read += sum(got(store, number) for number in range(200))
        assert sum(size_of(path) for path in blocks_of(tmp_path)) <= limit
    assert [writer.status for writer in writers] == [0, 0]
    assert [writer.acknowledged() for writer in writers] == orders
    assert num_read and store.counts.corrupt_blocks == store.counts.errors == 0


@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(s, marks=pytest.mark.exhaustive("more of the same")) for s in range(5, 50))]
)
def test_acknowledged_blocks_survive_kill_9(tmp_path, seed):
    writer = Writer(tmp_path, PLENTY, list(range(10000)))
    time.sleep(0.02 + random.Random(seed).uniform(0, 0.2))
    os.kill(writer.pid, signal.SIGKILL)
    os.waitpid(writer.pid, 0)
    acknowledged = writer.acknowledged()
    store = open_store(tmp_path)
    assert acknowledged == list(range(len(acknowledged))) and all(got(store, number) for number in acknowledged)
    there = sum(got(store, number) for number in range(len(acknowledged) + 3))
    assert store.counts.corrupt_blocks == 0 and there <= len(acknowledged) + 1
    fill(store, len(acknowledged) + 2)
    assert got(store, len(acknowledged) + 2)
