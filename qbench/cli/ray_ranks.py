"""--ray: the ranks of a command as tasks in a placement group of Ray, instead of processes that torchrun starts."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from functools import partial
from typing import Any

from qbench.measure.child import die_with_parent
from qbench.measure.host.machine import available_cores
from qbench.sweep.ray.ray_cluster import connected
from quant.errors import InputError

OPTION = "--ray"
PLACED_S = 60.0  # for the cluster to reserve a bundle per rank


@dataclass(frozen=True, slots=True)
class RankEnd:
    """Exit status of a rank's process, negative if a signal ended it, and its output"""

    status: int
    out: str
    err: str


def run_ranks_under_ray(address: str, num_ranks: int, threads: int) -> int:
    """The exit status of the command line of this process on so many ranks; the output is that of rank 0.

    threads  CPUs of each bundle
    raises   InputError for a command that Ray does not start, no Ray, no cluster, and one without room
    """
    argv = without_option(sys.argv[1:])
    if argv[0] == "serve":
        raise InputError(f"{OPTION} prints when the ranks have ended, so it cannot start a server; use torchrun")
    with ExitStack() as held:
        held.enter_context(redirect_stdout(sys.stderr))  # Ray's daemons print
        ray = connected(address, max(available_cores(), num_ranks * threads))
        held.callback(ray.shutdown)
        bundles = placed(ray, num_ranks, threads)
        ends = start(ray, bundles, argv)
    return shown(ends)


def without_option(argv: Sequence[str]) -> list[str]:
    """The command line of a rank: without --ray and its value."""
    kept, rest = [], iter(argv)
    for word in rest:
        if word == OPTION:
            next(rest, None)
        elif not word.startswith(f"{OPTION}="):
            kept.append(word)
    return kept


def placed(ray: Any, num_ranks: int, threads: int) -> list[Any]:
    """A scheduling strategy per rank, that of its bundle. raises InputError for a cluster without room for all"""
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = placement_group([{"CPU": threads}] * num_ranks, strategy="PACK")
    if not group.wait(PLACED_S):
        has = ray.cluster_resources().get("CPU", 0)
        raise InputError(f"no room for {num_ranks} ranks of {threads} CPUs each: the cluster has {has:g} CPUs")
    return [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank) for rank in range(num_ranks)]


def start(ray: Any, bundles: Sequence[Any], argv: Sequence[str]) -> list[RankEnd]:
    """Run the command line on all ranks, and wait for their ends. raises InputError for a node that is lost"""

    def on(rank: int, function: Callable, *arguments: Any) -> Any:
        task = ray.remote(function).options(max_retries=0, num_cpus=1, scheduling_strategy=bundles[rank])
        return task.remote(*arguments)

    try:
        hosts = ray.get([on(rank, host_of_task) for rank in range(len(bundles))])
        common = {"WORLD_SIZE": len(bundles), "MASTER_ADDR": hosts[0], "MASTER_PORT": ray.get(on(0, free_port))}
        ends = []
        for rank, host in enumerate(hosts):
            own = {"RANK": rank, "LOCAL_WORLD_SIZE": hosts.count(host)}
            env = {name: str(value) for name, value in (common | own).items()}
            ends.append(on(rank, run_rank, list(argv), env, os.getcwd()))
        return ray.get(ends)
    except ray.exceptions.RayError as error:
        raise InputError(f"{OPTION}: a node or worker of the ranks is lost: {str(error).splitlines()[0]}") from error


def host_of_task() -> str:
    """Address of the node that runs this."""
    import ray

    return ray.util.get_node_ip_address()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        return one.getsockname()[1]


def run_rank(argv: list[str], env: dict[str, str], folder: str) -> RankEnd:
    """One rank as a process of its own, as torchrun would start it; it ends with the worker that runs this."""
    done = subprocess.run(
        [sys.executable, "-m", "qbench", *argv],
        env=os.environ | env,
        cwd=folder if os.path.isdir(folder) else None,
        capture_output=True,
        text=True,
        preexec_fn=partial(die_with_parent, os.getpid()),
    )
    return RankEnd(done.returncode, done.stdout, done.stderr)


def shown(ends: Sequence[RankEnd]) -> int:
    """Print the output of rank 0, or the error of the first rank that failed; the exit status."""
    sys.stdout.write(ends[0].out)
    failed = [end for end in ends if end.status]
    sys.stderr.write(ends[0].err or (failed[0].err if failed else ""))
    return max((2 if end.status < 0 else end.status for end in failed), default=0)
