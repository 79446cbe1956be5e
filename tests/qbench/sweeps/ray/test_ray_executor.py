"""The driver's side: the placing of cases, and the handling of lost ones. The cluster is a double."""

import sys
from collections import Counter

import pytest

from qbench.measure.host.commit import CodeVersion
from qbench.measure.host.machine import Machine
from qbench.measure.metrics import Metrics
from qbench.measure.records.record import Origin
from qbench.run.case import Case
from qbench.sweeps.case_runner import Outcome
from qbench.sweeps.ray.ray_cluster import STARTS, Cluster, Lost, start_local
from qbench.sweeps.ray.ray_executor import ATTEMPTS, RayExecutor
from qbench.sweeps.ray.ray_placing import Demand, Node, demand_of
from quant.errors import InputError

GIB = 2**30


def case(number: int, threads: int = 1, bench: bool = False, **more) -> Case:
    shared = {"model": "ref:llama", "recipe": "q8_0", "eval": None, "device": "cpu", "number": number}
    return Case.from_json(shared | {"threads": threads, "bench": {"pp": 8} if bench else None} | more)


def node(name: str, cpus: float = 2, memory: float = 64 * GIB) -> Node:
    origin = Origin(Machine(f"machine of {name}"), CodeVersion(None, None, "c"), {})
    return Node(name, f"address of {name}", cpus, 0, memory, origin)


class DoubleCluster:
    """Nodes whose cases end in the order in which they began, one per turn."""

    def __init__(self, *nodes: Node, dies: dict[str, int] | None = None, lacks: tuple[str, ...] = ()) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.dies, self.lacks = dies or {}, lacks  # node -> after how many cases that it began
        self.began: list[tuple[int, str]] = []
        self.together: list[list[tuple[str, int]]] = []
        self.running: dict[int, object] = {}
        self.calls: list[str] = []

    def look(self) -> None:
        self.nodes = {name: node for name, node in self.nodes.items() if self.is_alive(name)}

    def is_alive(self, name: str) -> bool:
        return sum(1 for _, began in self.began if began == name) < self.dies.get(name, 10**9)

    def reaches(self, node: Node, path: str) -> bool:
        return path not in self.lacks

    def start(self, placed, sweep, worker):
        reference = len(self.began)
        self.began.append((placed.waited.number, placed.node.name))
        self.running[reference] = placed
        self.together.append([(one.node.name, one.waited.number) for one in self.running.values()])
        return reference

    def wait(self, references, seconds):
        return [min(references)]

    def outcome(self, reference):
        placed = self.running.pop(reference)
        if not self.is_alive(placed.node.name):
            raise Lost("the node is gone")
        return Outcome(Metrics.from_json({"on": placed.node.name}))

    def clean(self, sweep):
        self.calls.append("clean")

    def leave(self):
        self.calls.append("leave")


def run(cluster: DoubleCluster, cases: list[Case], tmp_path) -> dict[int, Outcome]:
    executor = RayExecutor(tmp_path, cluster)
    outcomes = list(executor.run(iter(enumerate(cases)), lambda *told: None))
    assert Counter(number for number, _ in outcomes) == Counter(range(len(cases)))
    return dict(outcomes)


def test_a_speed_case_has_its_node_to_itself(tmp_path):
    cluster = DoubleCluster(node("a", cpus=4), node("b", cpus=2))
    cases = [case(i, bench=i % 3 == 0) for i in range(20)]
    run(cluster, cases, tmp_path)
    for together in cluster.together:
        for name in ("a", "b"):
            here = [number for where, number in together if where == name]
            assert len(here) == 1 or not any(cases[number].speed for number in here)
            assert len(here) <= cluster.nodes[name].cpus
    assert max(map(len, cluster.together)) > 2, "quality cases do not share: the test tests too little"
    assert cluster.calls == ["clean", "leave"]


def test_a_lost_case_is_measured_on_another_node(tmp_path):
    cluster = DoubleCluster(node("a"), node("b"), dies={"b": 2})
    outcomes = run(cluster, [case(i) for i in range(8)], tmp_path)
    assert {dict(outcome.metrics.rest)["on"] for outcome in outcomes.values()} == {"a"}
    assert {outcome.origin.machine.id for outcome in outcomes.values()} == {"machine of a"}
    assert Counter(number for number, name in cluster.began if name == "b").total() == 2


def test_a_case_that_takes_its_nodes_along_ends_as_an_error(tmp_path):
    cluster = DoubleCluster(*(node(name, cpus=1) for name in "abcd"), dies=dict.fromkeys("abc", 1))
    cluster.outcome = lambda reference: lose_first(cluster, reference)
    outcomes = run(cluster, [case(0), case(1)], tmp_path)
    assert outcomes[0].error == f"lost with its worker {ATTEMPTS} times: it crashed" and outcomes[1].error is None
    assert len({name for number, name in cluster.began if number == 0}) == ATTEMPTS


def lose_first(cluster, reference):
    if cluster.running[reference].waited.number == 0:
        cluster.running.pop(reference)
        raise Lost("it crashed")
    return DoubleCluster.outcome(cluster, reference)


def test_a_case_that_no_node_can_take_has_a_reason_and_the_others_run(tmp_path):
    cluster = DoubleCluster(node("a"), node("b", cpus=4), lacks=("absent.txt",))
    text = {"text": "absent.txt", "text_sha256": "0"}
    cases = [case(0, threads=8), case(1, eval=text), case(2, threads=3), case(3, device="cuda")]
    outcomes = run(cluster, cases, tmp_path)
    assert outcomes[0].error.startswith("no node of the cluster has 8 CPU and 1.0 GiB; they have 2 CPU and 64.0 GiB")
    assert outcomes[1].error.startswith("no node has absent.txt: what is named by a path")
    assert outcomes[2].metrics.to_json() == {"on": "b"} and "8 CPU" not in outcomes[3].error


def test_a_cluster_without_nodes_ends_the_sweep_and_records_nothing(tmp_path):
    cluster = DoubleCluster(node("a"), dies={"a": 1})
    with pytest.raises(InputError, match="no node left; the same command goes on"):
        run(cluster, [case(0), case(1)], tmp_path)
    assert cluster.calls == ["leave"]


def test_the_next_case_is_taken_when_there_is_a_place(tmp_path):
    taken = []

    def cases():
        for number in range(6):
            taken.append(number)
            yield number, case(number, bench=True)

    outcomes = RayExecutor(tmp_path, DoubleCluster(node("a"))).run(cases(), lambda *told: None)
    next(outcomes)
    assert taken == [0]  # the second is asked for after the first is written


def test_memory_is_a_demand_too():
    demand = demand_of(case(0))
    assert demand.memory > GIB and demand == Demand(1, 0, demand.memory, whole=False)
    small = node("a", cpus=8, memory=2.5 * demand.memory)
    for _ in range(2):
        assert small.fits(demand)
        small.take_slot(demand)
    assert not small.fits(demand) and small.can_hold(demand) and sorted(small.slots) == [0, 1]
    del small.slots[0]
    assert small.take_slot(demand) == 0


@pytest.mark.parametrize("address", ["nonsense", "host:", "127.0.0.1:1", "127.0.0.1:99999", "ray://127.0.0.1:1"])
def test_a_missing_cluster_is_reported_at_once(address):
    pytest.importorskip("ray", reason="ray is not installed: sweeps on a cluster are not tested")
    with pytest.raises(InputError, match=f"ray={address}: (expected HOST:PORT|nobody answers)"):
        Cluster(address)


class SlowRay:
    """A Ray that starts at the given try."""

    def __init__(self, starts_at: int) -> None:
        self.starts_at, self.tries, self.calls = starts_at, 0, []

    def init(self, address, **options):
        self.tries += 1
        if self.tries < self.starts_at:
            raise Exception("The current node timed out during startup.")

    def shutdown(self):
        self.calls.append("shutdown")


def test_a_slow_start_of_ray_is_tried_again():
    slow, dead = SlowRay(STARTS), SlowRay(STARTS + 1)
    start_local(slow, num_cpus=2)
    assert (slow.tries, len(slow.calls)) == (STARTS, STARTS - 1)
    with pytest.raises(InputError, match=r"ray=local: Ray does not start on this machine .The current node"):
        start_local(dead, num_cpus=2)
    assert (dead.tries, len(dead.calls)) == (STARTS, STARTS)


def test_without_ray_the_command_names_the_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'qbench-llm\[ray\]'"):
        Cluster("auto")
