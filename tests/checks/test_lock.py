"""The lock file has exact versions of all that the tests need, and no host; weights are the trained ones."""

import hashlib
import re
import tomllib
from pathlib import Path

import pytest

from checks.lock import FILE, is_left_out

ROOT = Path(__file__).parents[2]
WEIGHTS = ROOT / "qbench" / "reference" / "weights"
SUMS = Path(__file__).with_name("weights.sha256")


def locked() -> dict[str, str]:
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9.-]+==[0-9][0-9A-Za-z.]*", line) for line in lines)
    return dict(line.split("==") for line in lines)


def test_every_package_that_the_tests_ask_for_is_locked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["project"]["dependencies"], *project["dependency-groups"]["test"]]
    names = {re.match(r"[A-Za-z0-9_.-]+", one)[0].lower().replace("_", "-") for one in asked}
    assert {name for name in names if not is_left_out(name)} <= locked().keys()


@pytest.mark.parametrize("line", SUMS.read_text().splitlines(), ids=lambda line: line.split()[-1])
def test_reference_weights_are_those_that_were_trained(line):
    digest, name = line.split()
    assert hashlib.sha256((WEIGHTS / name).read_bytes()).hexdigest() == digest


def test_every_file_of_the_weights_has_a_hash():
    found = {str(path.relative_to(WEIGHTS)) for path in WEIGHTS.rglob("*") if path.is_file()}
    assert found == {line.split()[1] for line in SUMS.read_text().splitlines()}
