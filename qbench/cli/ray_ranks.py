"""--ranks ray=ADDRESS: the ranks of a command as tasks in a placement group of Ray, without torchrun."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any

from qbench.cli.ray_output import ERR, OUT, Shown, send_output
from qbench.measure.host.machine import available_cores
from qbench.rendezvous import hold_port
from qbench.sweeps.ray.ray_cluster import connected
from quant.errors import InputError

OPTION = "--ranks"
OWN = ("ray", "restarts")  # keys of the option that are the starter's own
PLACED_S = 60.0  # for the cluster to reserve a bundle per rank
ENDING_S = 10.0  # for the other ranks to end by themselves after one has failed
CANCEL_S = 10.0  # for Ray to end a worker
LOOK_S = 0.2  # between two looks at the output of a rank that does not end by itself
ENDLESS = ("serve",)  # commands whose output is shown while they run
# The rank is a process of its own that ends with the worker. It asks for that by itself: code between fork and exec
# could wait for a lock that another thread of the worker has.
RANK = """
import sys
from qbench.measure.child import die_with_parent
die_with_parent(int(sys.argv.pop(1)))
from qbench.cli.main import main
sys.exit(main())
"""


@dataclass(frozen=True, slots=True)
class RankEnd:
    """Exit status of a rank's process, negative if a signal ended it, and its output.

    is_shown  whether the starter has printed the output already
    """

    status: int
    out: str = ""
    err: str = ""
    is_shown: bool = False

    @property
    def is_lost(self) -> bool:
        return self.status < 0


LOST = RankEnd(-9)  # its worker or its node is gone
STOPPED = RankEnd(-15)  # the starter ended it, after another rank had failed


def run_ranks_under_ray(address: str, num_ranks: int, threads: int, restarts: int = 0) -> int:
    """The exit status of the command line of this process on so many ranks; the output is that of rank 0.

    A server's output is shown while it runs, that of other commands when all ranks have ended.

    threads   CPUs of each bundle
    restarts  number of times that all ranks start again after one was lost
    raises    InputError for no Ray, no cluster, and one without room
    """
    argv, streams = without_options(sys.argv[1:]), {OUT: sys.stdout, ERR: sys.stderr}
    with ExitStack() as held:
        held.enter_context(redirect_stdout(sys.stderr))  # Ray's daemons print
        ray = connected(address, max(available_cores(), num_ranks * threads))
        held.callback(ray.shutdown)
        # Ray's own handler of SIGTERM prints its stack. A service manager's SIGTERM ends the ranks as Ctrl-C does.
        held.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, signal.default_int_handler))
        bundles = placed(ray, num_ranks, threads)
        output = Shown(ray, streams) if argv[0] in ENDLESS else None
        ends = start(ray, bundles, argv, output)
        for left in reversed(range(restarts)):
            if not any(end.is_lost for end in ends):
                break
            lost = "" if has_said(ends[0]) else f"{line_of(ends)}\n"
            sys.stderr.write(f"{lost}qbench: all ranks start again, {left} restarts are left\n")
            ends = start(ray, bundles, argv, output)
    return shown(ends)


def without_options(argv: Sequence[str]) -> list[str]:
    """The command line of a rank: the starter's own keys of --ranks are left out."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        option, equals, value = word.partition("=")
        if option != OPTION:
            kept.append(word)
        elif left := _own_left_out(value if equals else next(words, "")):
            kept += [f"{OPTION}={left}"] if equals else [OPTION, left]
    return kept


def _own_left_out(ranks: str) -> str:
    return ",".join(part for part in ranks.split(",") if part.partition("=")[0].strip() not in OWN)


def placed(ray: Any, num_ranks: int, threads: int) -> list[Any]:
    """A scheduling strategy per rank, that of its bundle. raises InputError for a cluster without room for all"""
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = placement_group([{"CPU": threads}] * num_ranks, strategy="PACK")
    if not group.wait(PLACED_S):
        has = ray.cluster_resources().get("CPU", 0)
        raise InputError(f"no room for {num_ranks} ranks of {threads} CPUs each: the cluster has {has:g} CPUs")
    return [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank) for rank in range(num_ranks)]


def start(ray: Any, bundles: Sequence[Any], argv: Sequence[str], output: Shown | None = None) -> list[RankEnd]:
    """Run the command line on all ranks, and wait for their ends.

    output  shows the output of rank 0 while it runs; None: its end has it
    raises  InputError if they cannot start
    """

    def on(rank: int, function: Callable, *arguments: Any) -> Any:
        task = ray.remote(function).options(max_retries=0, num_cpus=1, scheduling_strategy=bundles[rank])
        return task.remote(*arguments)

    try:
        hosts = ray.get([on(rank, host_of_task) for rank in range(len(bundles))])
        common = {
            "PYTHONUNBUFFERED": "1",
            "WORLD_SIZE": len(bundles),
            "MASTER_ADDR": hosts[0],
            "MASTER_PORT": ray.get(on(0, port_of_worker)),
        }
        running = []
        for rank, host in enumerate(hosts):
            own = {"RANK": rank, "LOCAL_WORLD_SIZE": hosts.count(host)}
            env = {name: str(value) for name, value in (common | own).items()}
            outbox = output.outbox if output and rank == 0 else None
            running.append(on(rank, run_rank, list(argv), env, os.getcwd(), outbox))
    except ray.exceptions.RayError as error:
        raise InputError(f"{OPTION}: no rank starts: {str(error).splitlines()[0]}") from error
    return ends_of(ray, running, output)


def ends_of(ray: Any, running: Sequence[Any], output: Shown | None = None) -> list[RankEnd]:
    """The end of every rank: a rank that does not end by itself after another one has failed is killed.

    running  Ray's reference to each rank
    output   as of `start`
    """
    ends: dict[Any, RankEnd] = {}
    deadline: float | None = None
    killed: list[Any] = []
    while left := [each for each in running if each not in ends]:
        wait_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        if output is not None:
            wait_s = LOOK_S if wait_s is None else min(LOOK_S, wait_s)
        ready = ray.wait(left, num_returns=1, timeout=wait_s)[0]
        if output is not None:
            output.look()
        is_late = deadline is not None and time.monotonic() >= deadline
        for each in ready:
            end = end_of(ray, each)
            ends[each] = STOPPED if end is LOST and each in killed else end
            if ends[each].status and deadline is None:
                deadline = time.monotonic() + ENDING_S
        if ready or not is_late:
            continue
        if killed:
            ends |= dict.fromkeys(left, STOPPED)
        else:
            for each in left:
                ray.cancel(each, force=True)  # the rank's process ends with the worker
            deadline, killed = time.monotonic() + CANCEL_S, left
    return [ends[each] for each in running]


def end_of(ray: Any, ended: Any) -> RankEnd:
    try:
        return ray.get(ended)
    except ray.exceptions.RayError:
        return LOST


def host_of_task() -> str:
    """Address of the node that runs this."""
    import ray

    return ray.util.get_node_ip_address()


_held: list[socket.socket] = []  # until the worker ends


def port_of_worker() -> int:
    """A port for rank 0 on the node of this worker."""
    _held.append(hold_port())
    return _held[-1].getsockname()[1]


def run_rank(argv: list[str], env: dict[str, str], folder: str, outbox: Any = None) -> RankEnd:
    """One rank as a process of its own, as torchrun would start it; it ends with the worker that runs this.

    Its output goes to files: a pipe would stay open as long as any process has it that the rank has started.

    outbox  gets the output while the rank runs; None: nobody does
    """
    command = [sys.executable, "-c", RANK, str(os.getpid()), *argv]
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        where = folder if os.path.isdir(folder) else None
        process = subprocess.Popen(command, env=os.environ | env, cwd=where, stdout=out, stderr=err)
        if outbox is not None:
            send_output(process, {OUT: out.fileno(), ERR: err.fileno()}, outbox)
        status = process.wait()
        out.seek(0)
        err.seek(0)
        return RankEnd(status, out.read(), err.read(), is_shown=outbox is not None)


def has_said(end: RankEnd) -> bool:
    """Whether the starter has printed an error of this rank"""
    return end.is_shown and bool(end.err.strip())


def shown(ends: Sequence[RankEnd]) -> int:
    """Print the output of rank 0, or the error of the first rank that failed; the exit status."""
    if not ends[0].is_shown:
        sys.stdout.write(ends[0].out)
        sys.stderr.write(ends[0].err)
    failed = [end for end in ends if end.status]
    if failed and not ends[0].err.strip():
        sys.stderr.write(f"{line_of(ends)}\n")
    return max((2 if end.is_lost else end.status for end in failed), default=0)


def line_of(ends: Sequence[RankEnd]) -> str:
    """One line on the rank that failed: the words of other ranks about it, else its number."""
    said = [end.err.strip() for end in ends if end.status and end.err.strip()]
    if said:
        return said[0].splitlines()[-1]
    lost = [rank for rank, end in enumerate(ends) if end.is_lost and end is not STOPPED]
    return f"qbench: rank {', '.join(map(str, lost))} was killed; the run is over"
