"""--ranks on the command line: processes that find each other, and their one line if something is wrong."""

import json
import signal
import sys
from subprocess import run

import openai
import pytest
from support.launched_ranks import run_ranks, start_ranks

from qbench.cli import rank_options
from qbench.cli.main import main

GENERATE = ("generate", "ref:llama", "--prompt", "The", "-n", "8", "--json")


def generated(capsys) -> list[int]:
    assert main([*GENERATE, "--threads", "1"]) == 0
    return json.loads(capsys.readouterr().out)["tokens"]


def test_two_lanes_generate_the_text_of_one_rank_and_only_rank_0_prints(capsys):
    first, second = run_ranks(*[(*GENERATE, "--ranks", "tp=2")] * 2)
    assert (first.status, second.status) == (0, 0), first.err
    assert json.loads(first.out)["tokens"] == generated(capsys)
    assert second.out == second.err == ""


def test_torchrun_starts_them():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "qbench"]
    done = run([*command, *GENERATE, "--ranks", "pp=2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert len(json.loads(line)["tokens"]) == 8


@pytest.mark.exhaustive("two processes; test_agree.py has the rule")
def test_ranks_with_different_models_end_in_one_line():
    ends = run_ranks(("generate", "ref:llama", "--ranks", "tp=2"), ("generate", "ref:llama-8k", "--ranks", "tp=2"))
    assert [end.status for end in ends] == [2, 2]
    (line,) = ends[0].err.splitlines()
    assert line.startswith("qbench: rank 1 on ") and "has another command line than rank 0" in line
    assert ends[1].err == ""


def test_an_error_of_another_rank_reaches_rank_0(tmp_path):
    lost = str(tmp_path / "lost.gguf")
    ends = run_ranks(("generate", "ref:llama", "--ranks", "tp=2"), ("generate", lost, "--ranks", "tp=2"))
    assert [end.status for end in ends] == [2, 2]
    (line,) = ends[0].err.splitlines()
    assert line.startswith("qbench: rank 1 on ") and "lost.gguf" in line


BY_GLOO = pytest.mark.exhaustive("one process more; links in test_links.py")


@pytest.mark.parametrize(
    ("sent", "patience", "did"),
    [
        (signal.SIGKILL, "120", "ended, in forward pass "),
        (signal.SIGSTOP, "5", "did not answer for 5 s, in forward pass "),
    ],
)
@pytest.mark.parametrize("link", ["shm", pytest.param("gloo", marks=BY_GLOO)])
def test_a_rank_that_dies_or_hangs_is_named(sent, patience, did, link):
    options = ("--ranks", f"tp=2,timeout={patience},link={link}")
    command = ("generate", "ref:llama", "--prompt", "The", "-n", "900", *options)
    ranks = start_ranks([command] * 2)
    try:
        ranks[0].wait_for_output()  # it generates
        ranks[1].send_signal(sent)
        end = ranks[0].end()
    finally:
        for rank in ranks:
            rank.kill()
    assert end.status == 2
    (line,) = end.err.splitlines()
    assert line.startswith("qbench: rank 1 on ") and did in line and line.endswith("of rank 0; the run is over")


def test_the_engine_of_two_lanes_has_the_text_of_static_batches():
    workload = ("--requests", "4", "--prompt", "8,40", "--new", "4,12", "--batch", "2", "--rounds", "1")
    command = ("engine", "ref:llama", *workload, "--compute", "exact", "--ranks", "tp=2,cut=gather", "--json")
    first, second = run_ranks(command, command)
    assert (first.status, second.status) == (0, 0), first.err
    contenders = json.loads(first.out)["contenders"]
    assert contenders["static batches"]["same_text"] == 1
    assert second.out == second.err == ""


LENDING = ("engine", "ref:llama", "--instances", "2", "--requests", "2", "--prompt", "20,150", "--new", "8,12")
LENDING = (*LENDING, "--batch", "2", "--chunk", "64", "--kv-memory", "320KiB", "--compute", "exact")


def test_instances_lend_pages_and_get_them_back():
    """A request of 160 tokens does not fit into a pool, but into two."""
    command = (*LENDING, "--seed", "3", "--json")
    first, second = run_ranks(command, command)
    assert (first.status, second.status, second.out) == (0, 0, ""), first.err
    row = json.loads(first.out)
    instances = row["instances"]
    assert [each["requests"] for each in instances] == [1, 1]
    assert sum(each["borrowed"] for each in instances) == sum(each["lent"] for each in instances) > 0
    assert all(each["returned"] == each["lent"] and each["same_text"] == 1 for each in instances)


def test_a_request_that_no_instances_can_hold_is_one_line():
    command = (*LENDING, "--prompt", "300,300")
    first, second = run_ranks(command, command)
    assert (first.status, second.status) == (2, 2)
    (line,) = first.err.splitlines()
    assert line.startswith("qbench: 3") and "but all instances together have " in line


# A server without work gives its orders often, and rank 1 prints one of them.
OFTEN_IDLE = """
import os
from importlib import import_module
from qbench.cli.main import main
from qbench.runtime.parallel import leading, orders
follow = import_module("qbench.runtime.parallel.follow")
leading.IDLE_SHARE = 1000
receive = follow.receive_order
def receive_and_print(ranks):
    kind, arrays = receive(ranks)
    if kind == orders.Kind.IDLE:
        os.write(1, b"idle ")
    return kind, arrays
follow.receive_order = receive_and_print
os._exit(main())
"""


def test_a_server_of_two_lanes_answers_as_one_rank_and_ends_if_the_other_dies(capsys):
    command = ("serve", "ref:llama", "--port", "0", "--ranks", "tp=2,cut=gather,timeout=120")
    ranks = start_ranks([command] * 2, OFTEN_IDLE)
    try:
        address = ranks[0].wait_for_error("/v1")
        url = address.split(" at ")[1].split(" (")[0]
        client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
        with pytest.raises(openai.BadRequestError):
            client.completions.create(model="ref:llama", prompt=[99999999])
        ranks[1].wait_for_output()  # so that a rank that waits for work is not late
        answer = client.completions.create(model="ref:llama", prompt="The", max_tokens=8, temperature=0)
        ranks[1].send_signal(signal.SIGKILL)
        end = ranks[0].end()
    finally:
        for rank in ranks:
            rank.kill()
    assert main([*GENERATE, "--threads", "1"]) == 0
    assert answer.choices[0].text == json.loads(capsys.readouterr().out)["text"]
    assert end.status == 2
    *_, line = end.err.splitlines()
    assert line.startswith("qbench: rank 1 on ") and " ended, " in line and " forward pass " in line


# Rank 1 is late, and rank 0 gets the signal as soon as it has printed its address.
ENDED_EARLY = """
import os, signal, time
from qbench.cli.main import main
from qbench.runtime import parallel
from qbench.serve import server
follow, run = parallel.follow, server.run
def run_and_end(served, listening, on_ready, **options):
    def end(url):
        on_ready(url)
        os.kill(os.getpid(), signal.SIGTERM)
    run(served, listening, end, **options)
parallel.follow = lambda model: (time.sleep(1), follow(model))
server.run = run_and_end
os._exit(main())
"""


def test_a_server_of_two_lanes_that_is_asked_to_end_ends_well():
    command = ("serve", "ref:llama", "--port", "0", "--ranks", "tp=2")
    ranks = start_ranks([command] * 2, ENDED_EARLY)
    try:
        ranks[0].wait_for_error("/v1")
        ranks[1].send_signal(signal.SIGTERM)  # torchrun signals all ranks
        ends = [rank.end() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [end.status for end in ends] == [0, 0], ends[0].err
    assert ends[0].err.splitlines()[-1].endswith("(Ctrl-C ends)")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("serve", "ref:llama", "--ranks", "sp=2"), "sp=2 does not combine with an engine on sp 2, pp 1 yet"),
        (
            ("serve", "ref:llama", "--ranks", "tp=2", "--preempt", "swap"),
            "--preempt swap does not combine with an engine",
        ),
        (
            ("engine", "ref:llama", "--ranks", "tp=2", "--vs", "llama.cpp"),
            "--vs llama.cpp does not combine with an engine",
        ),
        (
            ("engine", "ref:llama", "--ranks", "tp=2", "--kv-store", "here"),
            "--kv-store does not combine with an engine",
        ),
        (
            ("engine", "ref:llama", "--ranks", "tp=2", "--instances", "2"),
            "the division tp 2, pp 1, cut sum does not combine",
        ),
        (("engine", "ref:llama", "--instances", "2", "--policy", "window:64"), "--policy window:64 does not combine"),
        (("engine", "ref:llama", "--instances", "2"), "needs 2 ranks, got one process"),
        (("engine", "ref:llama", "--instances", "1"), "one instance has nobody to lend to"),
        (("engine", "ref:llama", "--kv-memory", "1MiB"), "--kv-memory is for --instances"),
    ],
)
def test_engines_that_several_ranks_cannot_have(command, message, capsys):
    assert main(list(command)) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ranks", "tp=2"), "tp 2, pp 1, cut sum needs 2 ranks, got one process; start them with torchrun"),
        (("--ranks", "tp=2", "--policy", "h2o:64"), "--policy h2o:64 does not combine with tp 2"),
        (("--ranks", "pp=2", "--kv-ram", "1GiB"), "--kv-ram does not combine"),
        (("--ranks", "tp=2", "--memory", "1GiB"), "--memory does not combine"),
        (("--ranks", "tp=0"), "got tp 0, ep 1, sp 1, pp 1; expected 1 or more of each"),
    ],
)
def test_options_that_do_not_go_together(arguments, message, capsys):
    assert main([*GENERATE, *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ((*GENERATE, "--ranks", "tp=3"), "torchrun started 2 ranks, expected tp x pp = 3 x 1 = 3"),
        (("recipes",), "torchrun started 2 ranks, but no --ranks divides the model"),
    ],
)
def test_another_number_of_ranks(command, message, monkeypatch, capsys):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert main(list(command)) == 2
    assert capsys.readouterr().err.startswith(f"qbench: {message}")
    waited = []
    monkeypatch.setattr(rank_options.time, "sleep", waited.append)
    monkeypatch.setenv("RANK", "1")
    assert main(list(command)) == 2
    assert capsys.readouterr().err.startswith(f"qbench: rank 1: {message}")
    assert waited == [rank_options.RANK_0_FIRST_S], "torchrun would end rank 0 before it prints"


@pytest.mark.exhaustive("measures for seconds")
def test_a_plan_with_measured_rates_names_the_ratio_to_a_run(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "devices: {core: {memory: 1GiB, rates: measured}}\n"
        "links: {loopback: {rates: measured}}\n"
        "hosts: [{devices: {core: 2}, link: loopback}]\n"
    )
    command = ("plan", "rand:tiny", "--cluster", str(file), "--goal", "latency", "--ctx", "64", "--measure", "--json")
    first, second = run_ranks(command, command)
    assert (first.status, second.status, second.out) == (0, 0, ""), first.err + second.err
    planned = json.loads(first.out)
    rates = planned["cluster"]["links"]["loopback"]["rates"]
    assert rates["latency_s"] > 0 and rates["over"] == "shm"
    for row in planned["layouts"]:
        if row["layout"]["tp"] * row["layout"]["pp"] * row["layout"]["sp"] == 2:
            assert row["ratio"] == row["decode"]["total_s"] / row["measured_s"]
        else:
            assert row["measured_s"] is None
