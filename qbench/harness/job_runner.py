"""The parent's side of a worker: send a job, follow its progress, return its result or raise what ended it."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

WORKER = (sys.executable, "-m", "qbench.harness.worker")


class JobFailed(RuntimeError):
    """A worker's one line on why there is no result."""


def run_job(
    job: dict[str, Any],
    log: Path,
    *,
    command: Sequence[str] = WORKER,
    progress: Callable[[int, int, str], None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The job's result, from a fresh process, which ends when this one does.

    log           file that takes what the worker prints
    environment   of the process; None: as this one's
    raises   JobFailed with the worker's own message, or with the signal or status that it died of
    """
    with open(log, "wb") as log_file:
        pipe = subprocess.PIPE
        # In a process group of its own, so that Ctrl-C reaches the sweep alone, which lets the case end.
        worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log_file, env=environment, process_group=0)
        try:
            # A worker that dies before it reads breaks the pipe; its status then says more than the error would.
            _, message = _send(worker, job), _last_message(worker, progress)
        finally:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
            worker.stdout.close()
    if "result" in message:
        return message["result"]
    raise JobFailed(message.get("error") or _cause_of_death(worker.returncode, log))


def _send(worker: subprocess.Popen, job: dict[str, Any]) -> None:
    try:
        worker.stdin.write(json.dumps(job).encode())
        worker.stdin.close()
    except BrokenPipeError:
        pass


def _last_message(worker: subprocess.Popen, progress: Callable[[int, int, str], None] | None) -> dict[str, Any]:
    """Reads until the worker closes its end, then waits for it; {} if it never told a result."""
    message: dict[str, Any] = {}
    for line in worker.stdout:
        if not line.endswith(b"\n"):
            break  # torn: it died while writing
        message = json.loads(line)
        if progress and "progress" in message:
            progress(*message["progress"])
    worker.wait()
    return message if worker.returncode in (0, 1) else {}


def _cause_of_death(status: int, log: Path) -> str:
    if status < 0:
        name = signal.Signals(-status).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        cause = f"the worker was killed by {name}{hint}"
    else:
        cause = f"the worker ended with status {status}"
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"{cause}: {lines[-1].strip()}" if lines else cause
