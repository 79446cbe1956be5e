"""Every command on a small random model of every architecture, without an internal error."""

import json
import signal
import urllib.request

import pytest
from support.architectures import GGUF_KINDS, KINDS
from support.served_process import served_process
from support.small_directory import write_small
from support.waits import WAIT_S

from qbench.cli.main import COMMANDS

TEXT = "Once upon a time there was a little girl who liked to play in the garden. " * 40
RECIPE, TEXTS = ("--recipe", "rtn-w8a8"), ("--text", "{text}", "--protocol", "windows-64", "--windows", "1")
BENCH = ("-p", "8", "-n", "2", "-r", "1")
SUITE = {
    "name": "family", "version": 1, "description": "One recipe", "recipes": ["rtn-w8a8"],
    "eval": {"max_windows": 1}, "bench": {"pp": 8, "tg": 2, "repetitions": 1},
}  # fmt: skip
# name -> command line; {model}, {text} and {out} are a directory, a text file and a new path
LINES = {
    "inspect": ("inspect", "{model}"),
    "quantize": ("quantize", "{model}", *RECIPE, "-o", "{out}"),
    "dry run": ("quantize", "{model}", *RECIPE, "--dry-run"),
    "doctor": ("doctor", "{model}"),
    "eval": ("eval", "{model}", *TEXTS),
    "eval with a recipe": ("eval", "{model}", *RECIPE, *TEXTS, "--reference", "{model}"),
    "eval of a KV format": ("eval", "{model}", "--kv", "kv-f16", *TEXTS),
    "bench": ("bench", "{model}", *BENCH),
    "bench with a recipe": ("bench", "{model}", *RECIPE, *BENCH),
    "bench of a policy": ("bench", "{model}", "--policy", "window:16", "-p", "40", "-n", "2", "-r", "1"),
    "race": ("race", "{model}", "--cache", "static,dynamic", *BENCH),
    "breakdown": ("breakdown", "{model}", "-n", "2"),
    "generate": ("generate", "{model}", "--prompt", "Once", "-n", "2"),
    "engine": ("engine", "{model}", "--requests", "2", "--prompt", "4,8", "--new", "2,3", "--rounds", "1"),
    "plan": ("plan", "{model}"),
    "breakeven": ("breakeven", "{model}", "--list"),
    "recommend": ("recommend", "{model}", "--text", "{text}", "--memory", "1GiB", "--windows", "1"),
    "sweep": ("sweep", "{suite}", "--dry-run"),
}
# `verify` and `serve` have tests below, families of `search` are in test_llama_cpp_searched.py, `mla` is of latent
# attention alone, and the rest name no model to run.
ELSEWHERE = {"verify", "serve", "mla", "gate", "models", "recipes", "policies", "patterns", "info", "report", "compare"}
ELSEWHERE |= {"search", "query", "completion", "kernels", "selftest", "tune"}


@pytest.fixture(scope="module", params=KINDS)
def family(request, tmp_path_factory):
    """(its name, the folder of its directory `model` and of `text.txt`)"""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "text.txt").write_text(TEXT)
    write_small(request.param, folder / "model")
    return request.param, folder


def test_every_command_has_a_line():
    assert {line[0] for line in LINES.values()} | ELSEWHERE == set(COMMANDS)


SLOW = pytest.mark.exhaustive("ten seconds per family")


@pytest.mark.parametrize(
    "line", [pytest.param(name, marks=SLOW if name in ("recommend", "sweep") else ()) for name in LINES]
)
def test_a_command_on_a_family(qbench, family, line, tmp_path):
    kind, folder = family
    given = {"model": folder / "model", "text": folder / "text.txt", "out": tmp_path / "out"}
    given["suite"] = tmp_path / "suite.yaml"
    given["suite"].write_text(json.dumps(SUITE | {"models": [str(given["model"])]}))
    outcome = qbench(*(word.format(**given) for word in LINES[line]))
    assert outcome.status == 0, f"{kind}: {outcome.err}"


@pytest.mark.parametrize("kind", GGUF_KINDS)
def test_a_gguf_file_of_a_family(qbench, kind, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    model, file = write_small(kind, tmp_path / "model"), str(tmp_path / "model.gguf")
    texts = [word.format(text=tmp_path / "text.txt") for word in TEXTS]
    for line in (
        ("quantize", str(model), "--recipe", "q8_0", "-o", file),
        ("verify", file),
        ("doctor", file),
        ("eval", file, *texts, "--reference", str(model)),
        ("bench", file, *BENCH),
        ("generate", file, "--prompt", "Once", "-n", "2"),
    ):
        outcome = qbench(*line)
        assert outcome.status == 0, f"{line[0]}: {outcome.err}"


@pytest.mark.exhaustive("some seconds per family")
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_of_a_family(kind, tmp_path):
    model = write_small(kind, tmp_path / "model")
    with served_process(str(model), cwd=tmp_path) as (server, url):
        with urllib.request.urlopen(f"{url}/v1/models", timeout=WAIT_S) as answer:
            name = json.load(answer)["data"][0]["id"]
        asked = {"model": name, "prompt": "Once", "max_tokens": 2, "temperature": 0}
        request = urllib.request.Request(
            f"{url}/v1/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] in (1, 2)
        server.send_signal(signal.SIGINT)
        assert server.wait(WAIT_S) == 0
