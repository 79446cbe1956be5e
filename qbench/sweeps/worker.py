"""`python -m qbench.sweeps.worker`: runs jobs, each in a process that this one forks, its packages loaded.

A process for each job makes the peak of its memory its own, and a crash one row's error; forking it saves the seconds
that torch takes to load. All its jobs run the code that this process loads, and name it in their rows.

in    {"job": {"name", "arguments"}, "log": path, "environment": {name: text or null}, "parent": process id or null}
      as a line for each job
out   {"progress": [done, total, activity]}*, then {"result": {...}} or {"error": "one line"},
      then {"ended": status, "seconds": that its process took}
"""

import atexit
import gc
import json
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from qbench.measure.child import die_with_parent, send, take_stdout
from qbench.sweeps.messages import JobRequest, WorkerMessage, WorkerRequest
from quant.errors import InputError
from quant.json_data import plain

Job = Callable[..., Any]  # by the arguments of a request and progress=; its result is written as JSON


def main() -> int:
    parent = os.getppid()
    die_with_parent(parent)
    from qbench.sweeps.jobs import JOBS, preload  # takes seconds, in which the parent may die

    preload()
    return serve(JOBS)


def serve(jobs: Mapping[str, Job]) -> int:
    """Until the other end closes its pipe. returns 0"""
    channel, own = take_stdout(), os.getpid()
    gc.freeze()  # or collecting in a child would write to, and so copy, all that it shares with this process
    for line in sys.stdin.buffer:
        request = WorkerRequest.from_json(json.loads(line))
        if request.parent is not None:
            die_with_parent(request.parent)  # it may have died before this process began
        start = time.perf_counter()
        child = os.fork()
        if child == 0:
            die_with_parent(own)
            leave_finalizers()
            redirect(request.log)
            change_environment(request.environment)
            leave(run(jobs, request.job, channel))
        _, status = os.waitpid(child, 0)
        tell(channel, WorkerMessage(ended=os.waitstatus_to_exitcode(status), seconds=time.perf_counter() - start))
    return 0


def run(jobs: Mapping[str, Job], job: JobRequest, channel: int) -> int:
    """returns 0 for a result, 1 for an error that was reported"""
    try:
        result = jobs[job.name](**job.arguments, progress=lambda *state: tell(channel, WorkerMessage(progress=state)))
    except (InputError, NotImplementedError, RuntimeError, OSError, MemoryError) as error:
        tell(channel, WorkerMessage(error=" ".join(str(error).split()) or type(error).__name__))
        return 1
    except BaseException:
        sys.stdout.flush()  # its output comes before the traceback, whose last line the parent reports
        raise
    tell(channel, WorkerMessage(result=plain(result)))
    return 0


def tell(channel: int, message: WorkerMessage) -> None:
    send(channel, message.to_json())


def leave_finalizers() -> None:
    """Leave the parent's finalizers to the parent: a child would remove torch's operators one by one at its end."""
    for finalizer in list(weakref.finalize._registry):  # pyright: ignore[reportAttributeAccessIssue]  # of CPython, not public
        finalizer.atexit = False


def leave(status: int) -> NoReturn:
    """Ends a child as Python would, except that modules stay: to free torch's takes about 0.5 s."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def redirect(log: str) -> None:
    """The output of this process goes into a new file; it reads nothing."""
    sys.stdout.flush()
    written, nothing = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), os.open(os.devnull, os.O_RDONLY)
    for opened, descriptor in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(opened, descriptor)
    os.close(written)
    os.close(nothing)


def change_environment(changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


if __name__ == "__main__":
    sys.exit(main())
