"""The records under results/: each names a commit that a reader can look at."""

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "results"


def git(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(("git", "-C", str(ROOT), *words), capture_output=True, text=True)


def commits_of(path: Path) -> set[str]:
    return {json.loads(line)["commit"] for line in path.read_text().splitlines()}


def unreachable(commits: set[str]) -> set[str]:
    return {commit for commit in commits if git("merge-base", "--is-ancestor", commit, "HEAD").returncode}


@pytest.fixture(autouse=True)
def needs_history():
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("no whole history here to look commits up in")


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*.jsonl")), ids=lambda path: path.parent.name)
def test_each_commit_is_in_the_history_or_explained(path):
    told = set(re.findall(r"`([0-9a-f]{40})`", (RESULTS / "README.md").read_text()))
    assert unreachable(commits_of(path)) <= told


def test_each_explanation_is_needed_and_leads_to_a_commit():
    rows = re.findall(r"^\| `([0-9a-f]{40})` \| ([0-9a-f]+) \|$", (RESULTS / "README.md").read_text(), re.M)
    assert {name for name, _ in rows} == unreachable(set().union(*map(commits_of, RESULTS.glob("*/*.jsonl"))))
    assert not unreachable({commit for _, commit in rows})
    assert unreachable({"0" * 40})
