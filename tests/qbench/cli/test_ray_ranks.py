"""Ranks in a placement group of Ray."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from support.waits import WAIT_S

from qbench.cli import ray_ranks
from qbench.cli.main import main
from qbench.cli.ray_output import Outbox, Tail
from qbench.cli.ray_ranks import LOST, STOPPED, RankEnd, ends_of, line_of, shown, without_options

GENERATE = ("generate", "ref:llama", "--prompt", "The", "-n", "8", "--json")
# Seconds until a stopped rank is given up. Ranks start apart from each other by less, even on a busy machine.
PATIENCE = "30"
# Another rank says it, or the starter if no rank does within ray_ranks.ENDING_S.
LOST_LINE = re.compile(r"qbench: rank 1 (on \S+ |was killed; )")
SLOW = pytest.mark.exhaustive("starts Ray")

MARK = "QBENCH_TEST_RUN"  # in the environment of all processes of a run, Ray's daemons included


def under_ray(*argv: str) -> subprocess.Popen:
    pytest.importorskip("ray", reason="ray is not installed")
    command = [sys.executable, "-m", "qbench", *argv, "--ranks", "ray=local"]
    env = os.environ | {MARK: secrets.token_hex(8)}
    driver = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    driver.mark = env[MARK]
    return driver


def marked(mark: str, rank: int | None = None) -> list[int]:
    """Processes of a run that have not ended, or those of one of its ranks."""
    wanted = [f"{MARK}={mark}", *([] if rank is None else [f"RANK={rank}"])]
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environ = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # of another user, or it has ended
            continue
        if all(each in environ for each in wanted):
            found.append(int(folder.name))
    return found


def waited(found, driver: subprocess.Popen | None = None):
    """The first value of found() that is true; driver: its end before is a failure"""
    deadline = time.monotonic() + WAIT_S
    while not (value := found()):
        assert time.monotonic() < deadline, "it hangs"
        assert driver is None or driver.poll() is None, driver.communicate()
        time.sleep(0.02)
    return value


def ranks_end(driver: subprocess.Popen) -> None:
    """No rank is left. Daemons of Ray, which end when they miss it, a minute later, are killed."""
    try:
        waited(lambda: not any(marked(driver.mark, rank) for rank in range(2)))
    finally:
        for pid in marked(driver.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        driver.communicate()


def run(*argv: str) -> tuple[int, str, str]:
    driver = under_ray(*argv)
    try:
        out, err = driver.communicate(timeout=WAIT_S)
    finally:
        driver.kill()
        ranks_end(driver)
    return driver.returncode, out, err


@SLOW
def test_two_stages_generate_the_text_of_one_rank(capsys):
    status, out, err = run(*GENERATE, "--ranks", "pp=2", "--threads", "1")
    assert status == 0 and main([*GENERATE, "--threads", "1"]) == 0
    assert json.loads(out)["tokens"] == json.loads(capsys.readouterr().out)["tokens"], err


def test_ranks_get_the_command_line_without_the_address():
    assert without_options(["eval", "m", "--ranks", "ray=auto,tp=2"]) == ["eval", "m", "--ranks", "tp=2"]
    assert without_options(["eval", "--ranks=ray=h:1, restarts=2,pp=2", "m"]) == ["eval", "--ranks=pp=2", "m"]
    assert without_options(["eval", "--ranks", "tp=2", "--ranks", "ray=local", "m"]) == ["eval", "--ranks", "tp=2", "m"]
    assert without_options(["engine", "--instances", "2", "--ranks=ray=local"]) == ["engine", "--instances", "2"]


def test_the_error_is_that_of_a_rank_which_failed(capsys):
    assert shown([RankEnd(0, "answers", ""), RankEnd(0, "", "warning")]) == 0
    assert shown([RankEnd(2, "", "qbench: rank 1 ended"), RankEnd(-9, "", "")]) == 2
    printed = capsys.readouterr()
    assert printed.out == "answers" and printed.err == "qbench: rank 1 ended"
    assert shown([RankEnd(0), LOST]) == 2
    assert capsys.readouterr().err == "qbench: rank 1 was killed; the run is over\n"


class FakeRay:
    """ends: reference -> seconds after the start and the end of a rank; a rank without them ends when it is killed"""

    class exceptions:
        class RayError(Exception):
            pass

    def __init__(self, ends: dict[str, tuple[float, RankEnd]], obeys: bool = True) -> None:
        self.ends, self.obeys, self.start = ends, obeys, time.monotonic()
        self.killed: list[str] = []

    def has_ended(self, each: str) -> bool:
        since = time.monotonic() - self.start
        return (each in self.ends and since >= self.ends[each][0]) or (self.obeys and each in self.killed)

    def wait(self, left, num_returns, timeout):
        deadline = time.monotonic() + (5 if timeout is None else timeout)
        while True:
            ready = [each for each in left if self.has_ended(each)]
            if ready or time.monotonic() >= deadline:
                return ready[:num_returns], left
            time.sleep(0.005)

    def get(self, each):
        if each in self.killed:
            raise self.exceptions.RayError
        return self.ends[each][1]

    def cancel(self, each, force):
        assert force
        self.killed.append(each)


def test_a_rank_that_the_starter_ended_is_not_named():
    assert line_of([STOPPED, LOST]) == "qbench: rank 1 was killed; the run is over"


FAILED = RankEnd(2, "", "qbench: rank 1 on here did not answer")


@pytest.mark.parametrize(
    ("ends", "obeys", "expected", "killed"),
    [
        ({"0": (0, RankEnd(0)), "1": (0.3, RankEnd(0))}, True, [RankEnd(0), RankEnd(0)], []),
        ({"0": (0, FAILED), "1": (0.05, FAILED)}, True, [FAILED, FAILED], []),
        ({"0": (0, FAILED)}, True, [FAILED, STOPPED], ["1"]),
        ({"1": (0, FAILED)}, True, [STOPPED, FAILED], ["0"]),
        ({"0": (0, FAILED)}, False, [FAILED, STOPPED], ["1"]),
    ],
    ids=["both end well", "both end by themselves", "1 hangs", "0 hangs", "1 cannot be killed"],
)
def test_ranks_that_do_not_end_after_a_failure_are_killed(ends, obeys, expected, killed, monkeypatch):
    monkeypatch.setattr(ray_ranks, "ENDING_S", 0.15)
    monkeypatch.setattr(ray_ranks, "CANCEL_S", 0.1)
    ray = FakeRay(ends, obeys)
    assert ends_of(ray, ["0", "1"]) == expected and ray.killed == killed


ENGINE = ("engine", "ref:llama", "--requests", "4", "--prompt", "8,40", "--new", "200,400", "--batch", "4")
ENGINE = (*ENGINE, "--rounds", "1", "--compute", "exact", "--ranks", "tp=2,cut=gather", "--threads", "1", "--json")


def signalled(rank: int, number: int, *argv: str) -> tuple[int, str, str]:
    """The end of a run whose rank gets a signal while it works; every rank ends."""
    driver = under_ray(*argv)
    try:
        os.kill(waited(lambda: at_work(driver.mark, rank), driver), number)
        out, err = driver.communicate(timeout=WAIT_S)
    finally:
        driver.kill()
        ranks_end(driver)
    return driver.returncode, out, err


def at_work(mark: str, rank: int) -> int | None:
    return next(filter(works, marked(mark, rank)), None)


def works(pid: int) -> bool:
    """Whether a rank has mapped the memory of its link, so that it loads or runs the model."""
    try:
        return "qbench-ranks" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


@SLOW
def test_a_rank_that_hangs_ends_the_run_in_one_line_and_every_rank():
    status, out, err = signalled(1, signal.SIGSTOP, *ENGINE, "--ranks", f"timeout={PATIENCE}")
    assert (status, out) == (2, "")
    line = err.splitlines()[-1]
    assert line.startswith("qbench: rank 1 on ") and f" did not answer for {PATIENCE} s, " in line


@SLOW
@pytest.mark.parametrize(("number", "patience"), [(signal.SIGKILL, "120"), (signal.SIGSTOP, PATIENCE)])
def test_ranks_start_again_and_answer_all_requests(number, patience):
    """Static batches run after the engine, and have the same text."""
    status, out, err = signalled(1, number, *ENGINE, "--ranks", f"timeout={patience},restarts=1")
    assert status == 0, err
    row = json.loads(out)
    assert row["contenders"]["static batches"]["same_text"] == 1
    assert LOST_LINE.search(err) and "all ranks start again" in err


@SLOW
def test_a_driver_that_is_killed_leaves_no_rank():
    driver = under_ray(*ENGINE)
    try:
        waited(lambda: at_work(driver.mark, 1), driver)
    finally:
        driver.kill()
        ranks_end(driver)


def ready_url(driver: subprocess.Popen) -> str:
    """The address that the server prints when it answers."""
    for line in driver.stderr:
        if found := re.search(r"http://[^/\s]+", line):
            return found[0]
    raise AssertionError("the server has ended")


def asked(url: str) -> str:
    body = json.dumps({"model": "ref:llama", "prompt": "The", "max_tokens": 6, "temperature": 0})
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/completions", body.encode(), headers)
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        return json.load(answer)["choices"][0]["text"]


@SLOW
def test_a_server_answers_again_after_a_rank_was_killed(capsys):
    argv = ("serve", "ref:llama", "--ranks", "pp=2", "--threads", "1", "--port", "0")
    driver = under_ray(*argv, "--ranks", "restarts=1")
    try:
        before = asked(ready_url(driver))
        os.kill(waited(lambda: at_work(driver.mark, 1), driver), signal.SIGKILL)
        lost, again = driver.stderr.readline(), driver.stderr.readline()
        assert LOST_LINE.search(lost) and "all ranks start again" in again
        assert asked(ready_url(driver)) == before
        driver.send_signal(signal.SIGTERM)
        assert (driver.wait(timeout=WAIT_S), driver.stderr.read().strip()) == (130, "qbench: interrupted")
    finally:
        driver.kill()
        ranks_end(driver)
    assert main(["generate", "ref:llama", "--prompt", "The", "-n", "6", "--json", "--threads", "1"]) == 0
    assert before in json.loads(capsys.readouterr().out)["text"]


def test_a_tail_gives_whole_characters(tmp_path):
    with open(tmp_path / "out", "wb", buffering=0) as file, open(tmp_path / "out", "rb") as reader:
        tail = Tail(reader.fileno())
        whole = "a\u00e9".encode()
        file.write(whole[:2])
        assert tail.read() == "a"
        file.write(whole[2:])
        assert tail.read() == "\u00e9" and tail.read() == ""


def test_an_outbox_is_emptied_in_its_order():
    box = Outbox()
    box.put("out", "one")
    box.put("err", "two")
    assert box.take() == [("out", "one"), ("err", "two")] and box.take() == []


@SLOW
@pytest.mark.parametrize(
    "argv",
    [
        ("eval", "ref:llama", "--windows", "1", "--ranks", "pp=2"),
        ("bench", "ref:llama", "--ranks", "tp=2", "-p", "16", "-n", "4", "-r", "1"),
        ("compare", "ref:llama", "--ranks", "pp=2", "--windows", "1"),
        (*ENGINE[:-3], "--json"),
    ],
    ids=lambda argv: argv[0],
)
def test_other_commands_run_to_an_end(argv):
    status, out, err = run(*argv, "--threads", "1")
    assert status == 0 and out, err


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (("generate", "ref:llama", "--prompt", "x", "--ranks", "ray=local"), "none of tp, pp, ep and sp divides"),
        (("generate", "ref:llama", "--prompt", "x", "--ranks", "pp=2,ray=nowhere"), "expected HOST:PORT"),
        (("generate", "ref:llama", "--ranks", "restarts=1"), "restarts is for ranks of ray"),
        (("generate", "ref:llama", "--ranks", "pp=2,restarts=-1,ray=local"), "got '-1', expected a whole number"),
    ],
)
def test_mistakes_are_one_line(argv, word, capsys, monkeypatch):
    pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setattr(sys, "argv", ["qbench", *argv])
    assert main(list(argv)) == 2
    err = capsys.readouterr().err
    assert word in err and err.strip().count("\n") == 0
