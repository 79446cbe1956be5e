"""`qbench serve --kv-store`, killed while it writes: nothing that was kept is lost, and the answers stay the same."""

import random
import re
import signal
from itertools import count
from pathlib import Path

import httpx
import numpy as np
import pytest
from support import patient
from support.disk_blocks import blocks_of
from support.launched_ranks import Rank
from support.metrics import metrics_of

from qbench.runtime.tiers.block_file import FIELDS, HEADER_BYTES, unpack
from qbench.runtime.tiers.block_store import BlockKey

PROMPTS = [
    f"Story {number}. " + f"Once upon a time there was a king who had {number} sons. " * 4 for number in range(3)
]
CALLS = (24, 60)  # of which one is the last: a block takes three, and the first prompt has fewer than eight blocks
NEVER = 0

# The command, which prints the path of each block that is kept, and is killed in one of the calls that write blocks.
KILLED = """
import os, signal, sys
from qbench.cli.main import main
from qbench.runtime.tiers.disk_store import DiskStore

calls_left, is_writing, put = int(sys.argv.pop()), False, DiskStore.put

def put_and_say(store, key, data, note):
    global is_writing
    is_writing = True
    is_kept = put(store, key, data, note)
    is_writing = False
    if is_kept:
        os.write(1, store.path_of(key).encode() + b"\\n")
    return is_kept

def deadly(name):
    call = getattr(os, name)
    def counted(*given):
        global calls_left
        calls_left -= is_writing
        if is_writing and calls_left == 0:
            if name == "writev":
                parts = b"".join(given[1])
                os.write(given[0], parts[: len(parts) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*given)
    return counted

DiskStore.put = put_and_say
for name in ("writev", "fsync", "rename"):
    setattr(os, name, deadly(name))
os._exit(main())
"""


class Server:
    """A process of `qbench serve`.

    last_call   number of the call that kills it, among those that write blocks
    """

    def __init__(self, *options: str, last_call: int = NEVER) -> None:
        command = ["serve", "ref:llama", "--port", "0", "--threads", "1", *options, str(last_call)]
        self.process = Rank(command, {}, KILLED)
        found = re.search(r"(http://127.0.0.1:\d+)/v1", self.process.wait_for_error("/v1"))
        assert found is not None
        self.url = found[1]

    def answer(self, prompt: str, salt: str | None = None) -> str:
        asked = {"model": "ref:llama", "prompt": prompt, "max_tokens": 8, "temperature": 0, "cache_salt": salt}
        return patient.post(f"{self.url}/v1/completions", json=asked).json()["choices"][0]["text"]

    def counted(self, name: str) -> int:
        return int(metrics_of(self.url)[f"qbench_kv_store_{name}_total"])

    def ask_until_it_dies(self, expected: dict[str, str], salt: str) -> int:
        """Blocks that it has counted as written at the last look; all pages of the prompts are new to it."""
        written = 0
        try:
            for turn in count():
                prompt = PROMPTS[turn % len(PROMPTS)]
                assert self.answer(prompt, f"{salt} {turn // len(PROMPTS)}") == expected[prompt]
                written = self.counted("written_blocks")
        except httpx.TransportError:
            return written
        raise AssertionError


def hidden(folder: Path) -> set[Path]:
    """Files that were being written."""
    return {*folder.glob("qbench-kv*/*/.*")}


def is_whole(path: Path) -> bool:
    """Whether a block's checksum is right. raises CorruptBlock if not"""
    space, root = path.parent.parent.name.rpartition("-")[2], path.parent.name
    depth, digest = path.name.split("-")
    file = np.fromfile(path, dtype=np.uint8)
    size = FIELDS.unpack(file[: FIELDS.size].tobytes())[5]
    key = BlockKey(bytes.fromhex(root), bytes.fromhex(digest), int(depth, 16))
    _, data = unpack(bytes.fromhex(space), key, file, size)
    return len(data) == size <= len(file) - HEADER_BYTES


@pytest.fixture(scope="module")
def expected() -> dict[str, str]:
    """Answers of a server without a store."""
    server = Server()
    try:
        return {prompt: server.answer(prompt) for prompt in PROMPTS}
    finally:
        server.process.kill()


@pytest.mark.parametrize(
    "seed, num_kills",
    [(0, 2), *(pytest.param(seed, 10, marks=pytest.mark.exhaustive("50 more kills")) for seed in range(1, 6))],
)
def test_a_server_that_is_killed_while_it_writes(tmp_path, expected, seed, num_kills):
    draw, first = random.Random(seed), PROMPTS[0]
    kept: set[Path] = set()
    for number in range(num_kills):
        left = hidden(tmp_path)
        server = Server("--kv-store", str(tmp_path), last_call=draw.randrange(*CALLS))
        try:
            if number:  # blocks of the killed server are read, and right
                assert server.answer(first, f"{number - 1} 0") == expected[first]
                assert [server.counted(name) for name in ("hits", "corrupt_blocks", "errors")] == [1, 0, 0]
            written = server.ask_until_it_dies(expected, str(number))
            ended = server.process.end()
        finally:
            server.process.kill()
        new = {Path(line) for line in ended.out.splitlines()}
        kept |= new
        assert ended.status == -signal.SIGKILL and len(new) >= written, ended.err
        assert {*blocks_of(tmp_path)} == kept and all(is_whole(path) for path in new)
        assert len(hidden(tmp_path) - left) == 1, "it was killed while it wrote a block"
    server = Server("--kv-store", str(tmp_path))
    try:
        for number in range(num_kills):
            assert server.answer(first, f"{number} 0") == expected[first]
        assert [server.counted(name) for name in ("hits", "corrupt_blocks", "errors")] == [num_kills, 0, 0]
    finally:
        server.process.kill()
