"""The policy of docs/add-a-policy.md is the code that the page shows, and its test passes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "add-a-policy.md"
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


COMMANDS = {
    "bench": "bench ref:llama --policy every-fourth:budget=32 -p 64 -n 2 -r 1 --budget 1 --json",
    "engine": "engine ref:llama --policy every-fourth:budget=32 --requests 2 --prompt 60,64 --new 3,4 --rounds 1",
    "sweep": "sweep sweep.yaml -o run",
}
SUITE = """
name: outsider
models: [ref:llama]
recipes: [bf16]
policies: ["every-fourth:budget=32"]
bench: {pp: 64, tg: 2}
"""


@pytest.mark.exhaustive("processes of their own for three commands and for the worker of a sweep")
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_know_the_policy(tmp_path: Path, command: str) -> None:
    policy, _ = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "every_fourth.py").write_text(policy, encoding="utf-8")
    # Every process imports the module, as `qbench.policies` would.
    (tmp_path / "sitecustomize.py").write_text("import every_fourth\n", encoding="utf-8")
    (tmp_path / "sweep.yaml").write_text(SUITE, encoding="utf-8")
    words = [sys.executable, "-m", "qbench", *COMMANDS[command].split()]
    done = subprocess.run(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
