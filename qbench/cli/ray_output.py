"""The output of rank 0 while it runs, from its node to the starter, through an actor of Ray."""

import os
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping
from subprocess import Popen
from typing import Any, TextIO

TAIL_S = 0.1  # between two looks at new output
MOST_BYTES = 1 << 16  # of one message
OUT, ERR = "out", "err"


class Outbox:
    """The actor: parts of the output in their order, until the starter takes them."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, str]] = []

    def put(self, stream: str, text: str) -> None:
        self._parts.append((stream, text))

    def take(self) -> list[tuple[str, str]]:
        parts, self._parts = self._parts, []
        return parts


class Shown:
    """The starter's end: prints the new output of rank 0 at each look.

    streams  of this process: OUT and ERR
    """

    def __init__(self, ray: Any, streams: Mapping[str, TextIO]) -> None:
        self.outbox = ray.remote(num_cpus=0)(Outbox).remote()
        self._ray, self._streams = ray, streams

    def look(self) -> None:
        try:
            parts = self._ray.get(self.outbox.take.remote())
        except self._ray.exceptions.RayError:  # its node is gone; the end of the ranks has a line of its own
            return
        for stream, text in parts:
            self._streams[stream].write(text)
            self._streams[stream].flush()


def send_output(process: Popen, files: Mapping[str, int], outbox: Any) -> int:
    """Put the output of a process into the outbox until it ends; its exit status.

    files  OUT and ERR -> descriptor of the file that the process writes to
    """
    import ray

    tails = {stream: Tail(descriptor) for stream, descriptor in files.items()}
    put: Callable = outbox.put.remote
    while True:
        status = process.poll()
        sent = [put(stream, text) for stream, tail in tails.items() if (text := tail.read())]
        if not sent and status is not None:
            return status
        ray.get(sent)
        if status is None:
            time.sleep(TAIL_S)


class Tail:
    """The text that has come to a file since the last call. descriptor: its place stays where the writer has it"""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._place = descriptor, 0
        self._decoder = getincrementaldecoder("utf-8")(errors="replace")

    def read(self) -> str:
        found = os.pread(self._descriptor, MOST_BYTES, self._place)
        self._place += len(found)
        return self._decoder.decode(found)
