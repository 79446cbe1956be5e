"""Ranks in a placement group of Ray."""

import json
import subprocess
import sys

import pytest

from qbench.cli.main import main
from qbench.cli.ray_ranks import RankEnd, shown, without_option

GENERATE = ("generate", "ref:llama", "--prompt", "The", "-n", "8", "--json")
SLOW = pytest.mark.exhaustive("starts Ray")


def under_ray(*argv: str) -> subprocess.Popen:
    pytest.importorskip("ray", reason="ray is not installed")
    command = [sys.executable, "-m", "qbench", *argv, "--ray", "local"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@SLOW
def test_two_stages_generate_the_text_of_one_rank(capsys):
    out, err = under_ray(*GENERATE, "--pp", "2", "--threads", "1").communicate(timeout=240)
    assert main([*GENERATE, "--threads", "1"]) == 0
    assert json.loads(out)["tokens"] == json.loads(capsys.readouterr().out)["tokens"], err


def test_ranks_get_the_command_line_without_the_address():
    assert without_option(["eval", "m", "--ray", "auto", "--tp", "2"]) == ["eval", "m", "--tp", "2"]
    assert without_option(["eval", "--ray=h:1", "m"]) == ["eval", "m"]


def test_the_error_is_that_of_a_rank_which_failed(capsys):
    assert shown([RankEnd(0, "answers", ""), RankEnd(0, "", "warning")]) == 0
    assert shown([RankEnd(2, "", "qbench: rank 1 ended"), RankEnd(-9, "", "")]) == 2
    printed = capsys.readouterr()
    assert printed.out == "answers" and printed.err == "qbench: rank 1 ended"


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (("generate", "ref:llama", "--prompt", "x", "--ray", "local"), "none of --tp, --pp, --ep and --sp"),
        (("generate", "ref:llama", "--prompt", "x", "--pp", "2", "--ray", "nowhere"), "expected HOST:PORT"),
        (("serve", "ref:llama", "--pp", "2", "--ray", "local"), "cannot start a server"),
    ],
)
def test_mistakes_are_one_line(argv, word, capsys, monkeypatch):
    pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setattr(sys, "argv", ["qbench", *argv])
    assert main(list(argv)) == 2
    err = capsys.readouterr().err
    assert word in err and err.strip().count("\n") == 0
