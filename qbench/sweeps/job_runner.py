"""The parent's side of a worker: send a job, follow its progress, return its result or raise its error."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from qbench.sweeps.messages import JobRequest, WorkerMessage, WorkerRequest
from quant.present import present

WORKER = (sys.executable, "-m", "qbench.sweeps.worker")
OnProgress = Callable[[int, int, str], None]


class JobFailed(RuntimeError):
    """A worker's one line on why there is no result."""


class Worker:
    """Runs one job after another, each in a fresh process. Started with the first job, and again after it died.

    command   that speaks as `qbench.sweeps.worker` does
    """

    def __init__(self, command: Sequence[str] = WORKER) -> None:
        self.command = command
        self.process: subprocess.Popen | None = None
        self.seconds = 0.0  # that the last job's process took, from its fork to its end

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def run(
        self,
        job: JobRequest,
        log: Path,
        *,
        progress: OnProgress | None = None,
        environment: Mapping[str, str | None] | None = None,
    ) -> Mapping[str, Any]:
        """The job's result, as JSON.

        log           file that takes the job's output
        environment   changes to the environment of the job's process; None takes a name out
        raises        JobFailed with the job's own message, or with the signal or status that its process died of
        """
        process = self._started(log)
        try:
            _send(process, WorkerRequest(job, str(log), environment or {}, os.getpid()))
            outcome, status, self.seconds = _follow(process, progress)
        except BaseException:
            self.kill()
            raise
        if status is None:  # the worker itself died, and its jobs with it
            status = process.wait()
            self.close()
        if outcome.result is not None and status == 0:
            return outcome.result
        raise JobFailed(outcome.error if status == 1 and outcome.error else _cause_of_death(status, log))

    def _started(self, log: Path) -> subprocess.Popen:
        if self.process is None or self.process.poll() is not None:
            self.close()
            pipe = subprocess.PIPE
            with open(log, "wb") as log_file:
                # In a process group of its own, so that Ctrl-C reaches the sweep alone, which lets the case end.
                self.process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, stderr=log_file, process_group=0)
        return self.process

    def close(self) -> None:
        """Lets the worker end. It holds no unfinished job."""
        if self.process is not None:
            with suppress(BrokenPipeError):  # it is gone, and the last message with it
                present(self.process.stdin).close()
            present(self.process.stdout).close()
            self.process.wait()
            self.process = None

    def kill(self) -> None:
        """Ends the worker and the job that it runs."""
        if self.process is not None:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            self.close()


def run_job(job: JobRequest, log: Path, *, progress: OnProgress | None = None) -> Mapping[str, Any]:
    """The result of a single job, as JSON. raises JobFailed"""
    with Worker() as worker:
        return worker.run(job, log, progress=progress)


def _send(process: subprocess.Popen, request: WorkerRequest) -> None:
    """A worker that dies before it reads breaks the pipe; its status then says more than the error would."""
    try:
        channel = present(process.stdin)
        channel.write(json.dumps(request.to_json()).encode() + b"\n")
        channel.flush()
    except BrokenPipeError:
        pass


def _follow(process: subprocess.Popen, progress: OnProgress | None) -> tuple[WorkerMessage, int | None, float]:
    """The last message before the job's process ended, its status and seconds; None where the worker died itself."""
    last = WorkerMessage()
    for line in present(process.stdout):
        if not line.endswith(b"\n"):
            break  # torn: it died while writing
        message = WorkerMessage.from_json(json.loads(line))
        if message.ended is not None:
            return last, message.ended, message.seconds or 0.0
        last = message
        if progress and message.progress is not None:
            progress(*message.progress)
    return WorkerMessage(), None, 0.0


def _cause_of_death(status: int, log: Path) -> str:
    if status < 0:
        name = signal.Signals(-status).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        cause = f"the worker was killed by {name}{hint}"
    else:
        cause = f"the worker ended with status {status}"
    lines = log.read_text(errors="replace", encoding="utf-8").strip().splitlines()
    return f"{cause}: {lines[-1].strip()}" if lines else cause
