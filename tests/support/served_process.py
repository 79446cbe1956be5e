"""`qbench serve` as a process of its own."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

STARTED = re.compile(r" at (http://127\.0\.0\.1:\d+)/v1 \(Ctrl-C ends\)")


@contextmanager
def served_process(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen, str]]:
    """The process of `qbench serve ARGUMENTS` on a free port, and its URL; killed at the end if it still runs."""
    command = [sys.executable, "-m", "qbench.cli.main", "serve", *arguments, "--port", "0"]
    # A process of a shell's background job ignores SIGINT; one that people interrupt does not.
    server = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=cwd, env=env,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert server.stderr is not None
    try:
        told = []
        for line in server.stderr:
            told.append(line)
            if (found := STARTED.search(line)) is not None:
                yield server, found[1]
                return
        raise RuntimeError(f"the server did not start: {''.join(told)}")
    finally:
        server.kill()
        server.wait()
        server.stderr.close()
