"""A process that has imported everything and forks ranks: a rank then starts in milliseconds instead of seconds.

`python -m support.rank_nursery FD` reads requests from the socket FD until its other end is closed.

in    one JSON object {"argv", "env", "code"} per message, with three descriptors: stdout, stderr and news of the rank.
      code: a script to run; null: the command line of qbench
news  the rank's process id on a line, and its exit status on another one once it has ended
"""

import json
import os
import socket
import sys

REQUEST_BYTES = 1 << 16


def serve(requests: socket.socket) -> None:
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 3)
        if not message:
            return
        keeper = os.fork()
        if not keeper:
            requests.close()
            _keep(json.loads(message), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(keeper, 0)


def _keep(request: dict, out: int, err: int, news: int) -> None:
    """Fork the rank from a process that outlives this one, and wait for its end there."""
    if os.fork():
        os._exit(0)
    rank = os.fork()
    if not rank:
        os.close(news)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os._exit(_run(request))
    os.close(out)
    os.close(err)
    os.write(news, f"{rank}\n".encode())
    _, status = os.waitpid(rank, 0)
    os.write(news, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _run(request: dict) -> int:
    """The exit status of a rank."""
    from qbench.cli.main import main

    os.environ.update(request["env"])
    sys.argv[1:] = request["argv"]
    try:
        if request["code"] is None:
            return main()
        exec(compile(request["code"], "rank", "exec"), {"__name__": "__main__"})
        return 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # as the command line sets it before it imports torch

    import qbench.calibration.open_subject
    import qbench.cli.generate
    import qbench.runtime.parallel
    import qbench.serve.server
    import qbench.sources  # noqa: F401

    with socket.socket(fileno=int(sys.argv[1])) as its_end:
        serve(its_end)
