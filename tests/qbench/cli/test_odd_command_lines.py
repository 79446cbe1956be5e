"""Odd command lines: whatever the words are, exit status 0, 1 or 2, one line of error, and no traceback."""

import importlib
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import click
import pytest
from support.command_matrix import Ended, command_lines, prepare, sample, shown
from support.memory_source import MemorySource

from qbench.cli.main import COMMANDS
from quant.artifacts.gguf_writer import write_gguf

# Those that measure the machine, and need no model to begin with, would run for minutes.
SLOW = {"info", "kernels", "selftest", "breakeven", "mla", "tune"}
WORDS = (
    "", " ", "0", "-1", "1", "99999999999999999999", "nan", "inf", "1e400", "0x10", "\u0663", "1,2,,3", ",", "all",
    "list", "a" * 5000, "{}", "[1]", "%s%n", "../..", "/dev/null", "/", ".", "~", "-", "--", "no/such", "ref:",
    "ref:llama", "rand:tiny", "rand:", "shape:", "hf:", "window:", "window:-1", "sinks:4+", "h2o:9", "1GiB", "-1GiB",
    "1e9TiB", "f32", "kv-int8", "q4_0", "q4_0+kv-int8", "+", "\udcff", "\u202e", "'; drop table records; --", "*",
    "a\nb",
)  # fmt: skip
MODELS = ("rand:tiny", "no/such", "", "/dev/null", ".", "ref:lama", "rand:tiny:q4_0")
LINES = (("info",), ("models",), ("recipes",))
SEED, COUNT, FEW = 7, 300, 15
# Some command lines are good, and begin to measure.
SHORT = {name: ("-p", "8", "-n", "2", "-r", "1") for name in ("bench", "race")}
SHORT["engine"] = ("--requests", "2", "--prompt", "4,8", "--new", "2,4", "--rounds", "1")


def odd_command_line(number: int) -> list[str]:
    """A command with odd arguments and up to three of its options with odd values."""
    rng = Random(f"{SEED} {number}")
    name = rng.choice([name for name in COMMANDS if name not in SLOW])
    params = importlib.import_module(f"qbench.cli.{name}").command.params
    options = [param for param in params if isinstance(param, click.Option) and param.opts != ["--help"]]
    words = [name, *SHORT.get(name, ())]
    for param in params:
        if isinstance(param, click.Argument):
            words += [rng.choice(MODELS) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
    for option in rng.sample(options, min(len(options), rng.randrange(4))):
        words.append(rng.choice([*option.opts, *option.secondary_opts]))
        if not option.is_flag:
            words.append(rng.choice(WORDS))
    if rng.random() < 0.1:
        words.insert(rng.randrange(len(words) + 1), rng.choice(WORDS))
    return words


class Hang(BaseException):
    """A command line took its seconds of CPU time."""


def give_up(*_) -> None:
    raise Hang


@pytest.fixture
def limited(tmp_path, monkeypatch):
    """An empty folder to work in, 20 s of CPU time, and no measurement that would begin."""
    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, 20)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


def cases() -> list:
    left_out = pytest.mark.exhaustive("300 command lines")
    return [pytest.param(number, marks=() if number < FEW else left_out) for number in range(COUNT)]


@pytest.mark.parametrize("number", cases())
def test_no_command_line_ends_in_a_traceback(number, qbench, limited):
    words = odd_command_line(number)
    outcome = qbench(*words)
    assert outcome.status in (0, 1, 2), (words, outcome.err[-500:])
    assert "Traceback" not in outcome.err and len(outcome.err) < 20_000, words
    if outcome.status == 2:
        assert outcome.err.strip().splitlines()[-1].startswith(("qbench: ", "Try ", "Error: ")), (words, outcome.err)


def test_a_sample_of_the_matrix_of_all_options(qbench, limited, tmp_path):
    model = tmp_path / "written.gguf"
    write_gguf(MemorySource(), model, name="odd")
    prepare(tmp_path, model)
    for line in sample(command_lines(), 12):
        done = qbench(*line)
        assert Ended(line, done.status, 0.0, done.err).fault is None, (shown(line), done)


def test_a_sample_larger_than_all_is_all():
    assert list(sample(LINES, 1 << 30)) == list(LINES) and len({*sample(LINES, 2)}) == 2


@pytest.mark.exhaustive("800 command lines")
@pytest.mark.timeout(3600)
def test_the_matrix_of_all_options():
    tests = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-m", "support.command_matrix"], cwd=tests, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
