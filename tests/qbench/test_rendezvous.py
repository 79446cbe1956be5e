"""`torchrun --rdzv-backend qbench`: the meeting of hosts, and its one line if the port is taken."""

import json
import os
import socket
import sys
from subprocess import PIPE, Popen, run

import pytest
from support.launched_ranks import free_port
from torch.distributed.elastic.rendezvous import RendezvousParameters

from qbench.rendezvous import make_handler

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1")
TORCHRUN = (*TORCHRUN, "--rdzv-backend", "qbench")
GENERATE = ("-m", "qbench", "generate", "ref:llama", "--prompt", "The", "-n", "4", "--ranks", "pp=2", "--json")


def of(endpoint: str, **config: str) -> RendezvousParameters:
    return RendezvousParameters("qbench", endpoint, "run", 2, 2, **config)


@pytest.fixture
def taken():
    """A port that another program has."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def line_of(params: RendezvousParameters, capsys) -> str:
    with pytest.raises(SystemExit) as end:
        make_handler(params)
    (line,) = capsys.readouterr().err.splitlines()
    assert end.value.code == 2
    return line


def test_a_port_in_use_is_one_line(taken, capsys):
    place = f"127.0.0.1:{taken}"
    line = line_of(of(place, rank="0"), capsys)
    assert line == f"qbench: {place} is in use by another program; choose another port with --rdzv-endpoint of torchrun"
    assert make_handler(of(place, rank="1")).get_backend() == "qbench", "another host has no need of its own port"


@pytest.mark.parametrize(
    ("endpoint", "config", "message"),
    [
        ("127.0.0.1:1", {}, "needs the number of this host, such as --rdzv-conf rank=0"),
        ("127.0.0.1:1", {"rank": "x"}, "needs the number of this host"),
        ("127.0.0.1", {"rank": "0"}, "--rdzv-endpoint '127.0.0.1': expected HOST:PORT"),
        ("", {"rank": "0"}, "--rdzv-endpoint '': expected HOST:PORT"),
    ],
)
def test_a_missing_rendezvous_is_one_line(endpoint, config, message, capsys):
    assert message in line_of(of(endpoint, **config), capsys)


@pytest.mark.exhaustive("starts torchrun")
def test_torchrun_ends_with_the_line(taken):
    place = ("--rdzv-endpoint", f"127.0.0.1:{taken}", "--rdzv-conf", "rank=0")
    done = run([*TORCHRUN, *place, *GENERATE], capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"qbench: 127.0.0.1:{taken} is in use by another program")


@pytest.mark.exhaustive("starts torchrun twice")
def test_two_hosts_meet():
    place = ("--rdzv-endpoint", f"127.0.0.1:{free_port()}")
    commands = [[*TORCHRUN, *place, "--rdzv-conf", f"rank={rank}", *GENERATE] for rank in range(2)]
    hosts = [Popen(command, stdout=PIPE, stderr=PIPE, text=True, env=os.environ) for command in commands]
    try:
        ends = [host.communicate() for host in hosts]
    finally:
        for host in hosts:
            host.kill()
    assert [host.returncode for host in hosts] == [0, 0], ends
    outputs = [out for out, _ in ends if out]
    assert len(outputs) == 1 and len(json.loads(outputs[0])["tokens"]) == 4
