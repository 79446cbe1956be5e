"""A Ray cluster as a sweep needs it: its nodes, a case sent to one of them, and the outcome."""

import logging
import os
import socket
import sys
from contextlib import ExitStack, redirect_stdout
from typing import Any

from qbench.measure.host.commit import code_version
from qbench.measure.records.record import origin
from qbench.sweeps.case_runner import Outcome
from qbench.sweeps.ray import ray_node
from qbench.sweeps.ray.ray_placing import Node, Placed
from quant.errors import InputError

AUTO = "auto"
STARTS = 4  # tries to start a cluster
LOCAL = "local"  # a cluster of this machine alone, for as long as this process
CONNECT_S = 5.0
ANSWER_S = 120.0  # for a node to start a worker, import the project and answer


class Lost(Exception):
    """Why a case has no outcome: its node or its worker is gone."""


class Cluster:
    """The cluster at an address, and those of its nodes that run the driver's code.

    address   "HOST:PORT" of its head, or "auto" for the one that this machine belongs to
    raises    InputError where Ray is not installed, no cluster is there, or a node of it runs other code
    """

    def __init__(self, address: str) -> None:
        self.held = ExitStack()
        # Ray prints its daemons' messages on stdout, which is for the sweep's results.
        self.held.enter_context(redirect_stdout(sys.stderr))
        self.ray = connected(address)
        self.folder = os.getcwd()
        self.nodes: dict[str, Node] = {}
        self.left_out: dict[str, str] = {}  # nodes that are not used, and why
        self.reached: dict[tuple[str, str], bool] = {}  # (node, path) -> whether it is there
        self.look()
        if self.left_out or not self.nodes:
            self.leave()
            why = "; ".join(self.left_out.values()) or "the cluster has no node with a CPU"
            raise InputError(f"ray={address}: {why}")

    def look(self) -> None:
        """See which nodes are there now, and ask those that are new who they are."""
        alive = {node["NodeID"]: node for node in self.ray.nodes() if node["Alive"] and node["Resources"].get("CPU")}
        self.nodes = {name: node for name, node in self.nodes.items() if name in alive}
        new = [name for name in alive if name not in self.nodes and name not in self.left_out]
        asked = {name: self._send(origin, name, num_cpus=0) for name in new}
        for name, answer in asked.items():
            address, resources = alive[name]["NodeManagerAddress"], alive[name]["Resources"]
            try:
                who = self.ray.get(answer, timeout=ANSWER_S)
            except self.ray.exceptions.RayError as error:
                self.left_out[name] = f"node {address} does not answer ({_first_line(error)})"
                continue
            if who.code.code != code_version().code:
                self.left_out[name] = f"node {address} runs other code than this machine: install the same commit there"
                continue
            room = (resources["CPU"], resources.get("GPU", 0.0), resources.get("memory", 0.0))
            self.nodes[name] = Node(name, address, *room, who)

    def reaches(self, node: Node, path: str) -> bool:
        """Whether the node has the file that a case names by this path."""
        if (node.name, path) not in self.reached:
            answer = self._send(ray_node.has, node.name, path, self.folder, num_cpus=0)
            try:
                self.reached[node.name, path] = self.ray.get(answer, timeout=ANSWER_S)
            except self.ray.exceptions.RayError:
                return False  # the node is gone
        return self.reached[node.name, path]

    def start(self, placed: Placed, sweep: str, worker: tuple[str, ...]) -> Any:
        """Send a case to its node. returns Ray's reference to its outcome

        sweep    name of its folder on every node
        worker   command that runs a job there
        """
        demand, node = placed.waited.demand, placed.node
        return self._send(
            ray_node.run_case,
            node.name,
            placed.waited.case,
            f"{sweep}/{node.name[:12]}-{placed.slot}",
            self.folder,
            worker,
            num_cpus=node.cpus if demand.whole else demand.cpus,
            num_gpus=demand.gpus,
            memory=demand.memory,
        )

    def outcome(self, reference: Any) -> Outcome:
        """Outcome of a case that has ended. raises Lost"""
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:  # raised by the case's own code
            return Outcome(error=_first_line(error.cause or error))
        except self.ray.exceptions.RayError as error:
            raise Lost(_first_line(error)) from error

    def wait(self, references: list[Any], seconds: float) -> list[Any]:
        """Those that have ended, at the latest after so many seconds."""
        return self.ray.wait(references, num_returns=1, timeout=seconds)[0]

    def leave(self) -> None:
        """Whatever still runs for this driver ends."""
        self.ray.shutdown()
        self.held.close()

    def clean(self, sweep: str) -> None:
        """Remove a sweep's files from every node."""
        asked = [self._send(ray_node.clean, name, sweep, num_cpus=0) for name in self.nodes]
        self.ray.wait(asked, num_returns=len(asked), timeout=ANSWER_S)

    def _send(self, function: Any, node: str, *arguments: Any, **room: float) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        # A lost case is placed again, maybe elsewhere, so Ray must not retry by itself.
        task = self.ray.remote(function).options(max_retries=0, scheduling_strategy=there, **room)
        return task.remote(*arguments)


def connected(address: str, num_cpus: int | None = None) -> Any:
    """Ray, connected to the cluster at the address; num_cpus: of one that LOCAL starts here. raises as `Cluster`"""
    try:
        import ray
    except ImportError as error:
        raise InputError("ray needs Ray: pip install 'qbench-llm[ray]', on every node") from error
    if address == LOCAL and num_cpus is not None:
        quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
        start_local(ray, num_cpus=num_cpus, include_dashboard=False, **quiet)
        return ray
    if address != AUTO:
        _require_listener(address)
    try:
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = "this machine belongs to no cluster" if address == AUTO else f"no cluster there ({_first_line(error)})"
        raise InputError(f"ray={address}: {where}; `ray start --head` starts one") from error
    return ray


def start_local(ray: Any, **options: Any) -> None:
    """Ray gives its own processes 30 s to start, so a busy machine needs more than one try.

    raises   InputError if they do not start
    """
    for tries_left in reversed(range(STARTS)):
        try:
            ray.init(LOCAL, **options)
            return
        except Exception as error:  # Ray raises no class of its own
            ray.shutdown()
            if not tries_left:
                raise InputError(
                    f"ray={LOCAL}: Ray does not start on this machine ({_first_line(error)}); try again when it is "
                    "less busy"
                ) from error


def _require_listener(address: str) -> None:
    """Ray itself tries for many minutes. raises InputError if nobody listens at "HOST:PORT" """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"ray={address}: expected HOST:PORT of a cluster's head, or {AUTO}")
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"ray={address}: nobody answers there ({error}); start one with `ray start --head`") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
