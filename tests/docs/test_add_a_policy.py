"""The policy of docs/contribute/add-a-policy.md is the code that the page shows, and its test passes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.served_process import served_process

PAGE = Path(__file__).parents[2] / "docs" / "contribute" / "add-a-policy.md"
MOST_LINES = 30


def test_the_page_is_enough(tmp_path: Path) -> None:
    policy, test = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert sum(1 for line in (policy + test).splitlines() if line.strip()) <= MOST_LINES
    (tmp_path / "every_fourth.py").write_text(policy, encoding="utf-8")
    # The page's reader imports the module in `qbench.policies`.
    (tmp_path / "test_every_fourth.py").write_text("import every_fourth\n" + test, encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True)
    assert done.returncode == 0, done.stdout.decode()
    assert "1 passed" in done.stdout.decode()


SHOWN = "every-fourth:budget=32"
COMMANDS = {
    "eval": f"eval ref:llama --policy {SHOWN} --reference ref:llama --windows 1 --json",
    "bench": f"bench ref:llama --policy {SHOWN} -p 64 -n 2 -r 1 --budget 1 --json",
    "engine": f"engine ref:llama --policy {SHOWN} --requests 2 --prompt 60,64 --new 3,4 --rounds 1 --json",
    "generate": f"generate ref:llama --policy {SHOWN} --prompt once -n 2 --json",
    "plan": f"plan ref:llama --policy {SHOWN} --ctx 512",
    "policies": "policies",
    "sweep": "sweep sweep.yaml -o run",
}
SUITE = f"""
name: outsider
models: [ref:llama]
recipes: [bf16]
policies: ["{SHOWN}"]
bench: {{pp: 64, tg: 2}}
"""


@pytest.fixture
def outsider(tmp_path: Path) -> dict[str, str]:
    """The environment of processes that all import the policy, as `qbench.policies` would."""
    policy, _ = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "every_fourth.py").write_text(policy, encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text("import every_fourth\n", encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def run(words: str, folder: Path, env: dict[str, str]) -> str:
    command = [sys.executable, "-m", "qbench", *words.split()]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.exhaustive("processes of their own for seven commands, for the worker of a sweep, and for its report")
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_know_the_policy(tmp_path: Path, outsider: dict[str, str], command: str) -> None:
    (tmp_path / "sweep.yaml").write_text(SUITE, encoding="utf-8")
    out = run(COMMANDS[command], tmp_path, outsider)
    if command == "sweep":
        out = run("report run --policies", tmp_path, outsider)
    assert "every-fourth" in out


@pytest.mark.exhaustive("a server")
def test_a_server_knows_the_policy(tmp_path: Path, outsider: dict[str, str]) -> None:
    httpx = pytest.importorskip("httpx")
    with served_process("ref:llama", "--policy", SHOWN, cwd=tmp_path, env=outsider) as (_, url):
        asked = {"model": "ref:llama", "prompt": "The king " * 40, "max_tokens": 2}
        answer = httpx.post(f"{url}/v1/completions", json=asked, timeout=60)
    assert answer.status_code == 200, answer.text
