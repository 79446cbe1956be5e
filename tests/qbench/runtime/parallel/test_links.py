"""Links between processes: shared memory carries the values that gloo carries, and leaves nothing behind."""

import json
import os
import shutil
import sys
from subprocess import DEVNULL, PIPE, Popen, run

import pytest
from support.launched_ranks import run_ranks
from support.waits import WAIT_S

from qbench.runtime.parallel.gloo_link import interface_to
from qbench.runtime.parallel.shared_memory import Offer, host_identity, size_bytes

# Per link: a sum, a gather with other widths and a message from rank 0 to the last, most longer than a ring; the bits.
EXCHANGES = """
import hashlib, sys, torch
from qbench.run.rank_layout import RankLayout
from qbench.runtime.parallel.meeting import Meeting
from qbench.runtime.parallel.joined import open_link
from qbench.runtime.parallel.ranks import Ranks
num_ranks, rank = int(sys.argv[1]), int(sys.argv[2])
meeting = Meeting(rank, num_ranks, 60)
for link in (open_link(meeting, "auto"), open_link(meeting, "gloo")):
    ranks, found = Ranks(RankLayout(tp=num_ranks), meeting, link), []
    torch.manual_seed(ranks.rank)
    for size in (1, 100_000):
        x = torch.randn(3, size)
        ranks.add(x.numpy())
        widths = [size + lane for lane in range(num_ranks)]
        found += [x, *ranks.gather(torch.randn(2, widths[ranks.lane]), widths), ranks.largest(torch.randn(7))]
    if ranks.rank == 0:
        ranks.send(found[0] + 1, [num_ranks - 1])
        found.append(found[0] + 1)
    elif ranks.rank == num_ranks - 1:
        found.append(ranks.receive(found[0].shape, 0))
    print(link.name, hashlib.sha256(b"".join(each.numpy().tobytes() for each in found)).hexdigest())
meeting.part()
"""


def outputs(num_ranks: int) -> list[list[str]]:
    ends = run_ranks(*[(str(num_ranks), str(rank)) for rank in range(num_ranks)], code=EXCHANGES)
    assert [end.status for end in ends] == [0] * num_ranks, ends[0].err
    return [end.out.split() for end in ends]


@pytest.mark.parametrize(
    "num_ranks", [2, pytest.param(3, marks=pytest.mark.exhaustive("as two ranks, with one more process"))]
)
def test_shared_memory_carries_the_bits_that_gloo_carries(num_ranks):
    found = outputs(num_ranks)
    for shm, by_memory, gloo, by_sockets in found:
        assert (shm, gloo) == ("shm", "gloo") and by_memory == by_sockets
    assert found[0] == found[-1]


def test_memory_has_no_name_and_is_that_of_the_offer():
    offer = Offer.make(2)
    assert os.readlink(f"/proc/self/fd/{offer.descriptor}").startswith("/memfd:"), "no name in /dev/shm"
    mapped = offer.map(os.getpid(), 2)
    assert len(mapped) == size_bytes(2) - 4096 and not mapped.any()
    again = Offer.from_json(json.loads(json.dumps(offer.to_json()))).map(os.getpid(), 2)
    again[5] = 7
    assert mapped[5] == 7
    with pytest.raises(OSError, match="belongs to another run"):
        Offer(offer.descriptor, "00" * 16).map(os.getpid(), 2)
    with pytest.raises(OSError, match="no memory of 9 ranks"):
        offer.map(os.getpid(), 9)
    offer.close()
    with pytest.raises(OSError, match="No such file"):
        offer.map(os.getpid(), 2)
    mapped[9] = 1
    assert again[9] == 1, "those who have mapped it keep it"


def test_a_system_without_such_memory_gives_a_reason(monkeypatch):
    def refuse(name):
        raise OSError("no memfd here")

    monkeypatch.setattr(os, "memfd_create", refuse)
    with pytest.raises(OSError, match="no memfd here"):
        Offer.make(2).map(os.getpid(), 2)


def test_processes_of_one_host_have_one_identity():
    code = "from qbench.runtime.parallel.shared_memory import host_identity; print(host_identity())"
    (other,) = run_ranks((), code=code)
    assert other.out.strip() == host_identity()


@pytest.mark.parametrize(
    ("host", "interface"), [("127.0.0.1", "lo"), ("localhost", "lo"), ("no.such.host.invalid", None)]
)
def test_the_interface_that_reaches_a_host(host, interface):
    assert interface_to(host) == interface


@pytest.fixture
def two_networks():
    """Namespaces of two hosts with a cable between them; the name of neither is an address of the cable."""
    names, host_ids = [f"qbench-{os.getpid()}-{i}" for i in range(2)], (1, 2)
    if os.geteuid() != 0 or shutil.which("ip") is None or run(["ip", "netns", "add", names[0]], check=False).returncode:
        pytest.skip("needs root and ip netns")
    try:
        for command in (
            f"netns add {names[1]}",
            f"link add cable netns {names[0]} type veth peer name cable netns {names[1]}",
            *(f"-n {name} addr add 10.99.99.{i}/24 dev cable" for name, i in zip(names, host_ids, strict=True)),
            *(f"-n {name} link set {link} up" for name in names for link in ("cable", "lo")),
        ):
            run(["ip", *command.split()], check=True)
        yield names
    finally:
        for name in names:
            run(["ip", "netns", "del", name], check=False, stderr=DEVNULL)


@pytest.mark.exhaustive("two processes that import torch")
def test_ranks_in_two_networks_meet_and_generate(two_networks):
    generate = ("-m", "qbench", "generate", "ref:llama", "--prompt", "The", "-n", "4", "--ranks", "pp=2,link=gloo")
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "10.99.99.1", "MASTER_PORT": "29531"}
    ranks = [
        Popen(
            ["ip", "netns", "exec", name, sys.executable, *generate, "--json"],
            env=os.environ | common | {"RANK": str(rank)},
            stdout=PIPE,
            stderr=PIPE,
            text=True,
        )
        for rank, name in enumerate(two_networks)
    ]
    (out, err), _ = [rank.communicate(timeout=WAIT_S) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], err
    assert len(json.loads(out)["tokens"]) == 4
