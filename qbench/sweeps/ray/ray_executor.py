"""`RayExecutor`: the cases of a sweep on the nodes of a Ray cluster. The driver places them, and it alone writes.

A case whose speed is measured has a node to itself; others share one, as far as its processors, GPUs and memory go. A
case whose node or worker is lost is measured again, on another node if there is one.
"""

import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from qbench.run.case import Case
from qbench.run.work import text_file
from qbench.sweeps.case_runner import Outcome
from qbench.sweeps.executor import Numbered, OnStage
from qbench.sweeps.job_runner import WORKER
from qbench.sweeps.ray.ray_cluster import Cluster, Lost
from qbench.sweeps.ray.ray_placing import Node, Placed, Waiting, demand_of
from quant.errors import InputError

ATTEMPTS = 3  # of a case whose node is lost
POLL_S = 1.0  # how soon a node that joins is seen


class RayExecutor:
    """Many machines at once.

    folder   of the run, on the driver
    worker   command that runs a job, on the nodes
    """

    def __init__(self, folder: Path, cluster: Cluster, worker: tuple[str, ...] = WORKER) -> None:
        self.cluster, self.worker = cluster, worker
        self.sweep = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
        self.waiting: deque[Waiting] = deque()  # lost ones first, then the one that found no place
        self.running: dict[Any, Placed] = {}  # by Ray's reference to the outcome

    def machines(self) -> set[str]:
        return {node.origin.machine.id for node in self.cluster.nodes.values()}

    def run(self, cases: Iterator[Numbered], on_stage: OnStage) -> Iterator[tuple[int, Outcome]]:
        try:
            yield from self.measure(cases, on_stage)
            self.cluster.clean(self.sweep)
        finally:
            self.cluster.leave()

    def measure(self, cases: Iterator[Numbered], on_stage: OnStage) -> Iterator[tuple[int, Outcome]]:
        """The outcomes of all cases, placed as nodes have room; the list of nodes is read again each turn."""
        is_over = False
        while self.waiting or self.running or not is_over:
            self.cluster.look()
            while not is_over and not self.waiting and any(node.has_room for node in self.nodes()):
                taken = next(cases, None)
                is_over = taken is None
                if taken is not None:
                    self.waiting.append(Waiting(*taken, demand_of(taken[1])))
                    yield from self.place(on_stage)
            yield from self.place(on_stage)
            for reference in self.cluster.wait(list(self.running), POLL_S) if self.running else ():
                yield from self.ended(reference, self.running.pop(reference))

    def nodes(self) -> list[Node]:
        return list(self.cluster.nodes.values())

    def place(self, on_stage: OnStage) -> Iterator[tuple[int, Outcome]]:
        """Start waiting cases in order, as far as there are places; a case that no node can take at all ends here.

        raises   InputError where the cluster has no node any more
        """
        while self.waiting:
            if not self.cluster.nodes:
                raise InputError("the cluster has no node left; the same command goes on when it has")
            first = self.waiting[0]
            able, why = self.able(first)
            free = [node for node in able if node.fits(first.demand)]
            if able and not free:
                return
            self.waiting.popleft()
            if not able:
                yield first.number, Outcome(error=why)
                continue
            # First nodes that have not lost it, then nodes that run other cases, so that whole nodes stay free.
            node = min(free, key=lambda node: (first.lost.count(node.name), -len(node.slots)))
            on_stage(first.number, "measure", (0, 0, f"on {node.address}"))
            placed = Placed(first, node, node.take_slot(first.demand))
            self.running[self.cluster.start(placed, self.sweep, self.worker)] = placed

    def able(self, waiting: Waiting) -> tuple[list[Node], str]:
        """The nodes that could take it if nothing else ran there, or why no node could."""
        large = [node for node in self.nodes() if node.can_hold(waiting.demand)]
        if not large:
            most = ", ".join(node.room for node in self.nodes())
            return [], f"no node of the cluster has {waiting.demand}; they have {most}"
        paths = paths_of(waiting.case)
        for path in paths:
            if not any(self.cluster.reaches(node, path) for node in large):
                return (
                    [],
                    f"no node has {path}: what is named by a path must lie there on every node",
                )
        return [node for node in large if all(self.cluster.reaches(node, path) for path in paths)], ""

    def ended(self, reference: Any, placed: Placed) -> Iterator[tuple[int, Outcome]]:
        """Its outcome; a lost one waits again, until it was lost ATTEMPTS times."""
        waited, node = placed.waited, placed.node
        node.slots.pop(placed.slot, None)
        try:
            yield waited.number, replace(self.cluster.outcome(reference), origin=node.origin)
        except Lost as lost:
            waited.lost.append(node.name)
            if len(waited.lost) < ATTEMPTS:
                self.waiting.appendleft(waited)
            else:
                error = f"lost with its worker {ATTEMPTS} times: {lost}"
                yield waited.number, Outcome(error=error, origin=node.origin)


def paths_of(case: Case) -> list[str]:
    """Paths that the case names, which a node must reach."""
    texts = [section.text for section in (case.quality, case.calibration) if section and section.text]
    files = [case.recipe] if case.recipe and case.recipe_sha256 else []
    files += [str(file) for file in map(text_file, texts) if file is not None]
    return [case.model] * Path(case.model).expanduser().exists() + files
