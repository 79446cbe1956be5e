"""The lock file has exact versions of all that the tests need, and no host; weights are the trained ones."""

import hashlib
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from checks.lock import FILE, is_left_out

ROOT = Path(__file__).parents[2]
WEIGHTS = ROOT / "qbench" / "reference" / "weights"
SUMS = Path(__file__).with_name("weights.sha256")


def locked() -> dict[str, str]:
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9.-]+==[0-9][0-9A-Za-z.]*", line) for line in lines)
    return dict(line.split("==") for line in lines)


def asked(*extras: str) -> list[Requirement]:
    """Requirements of an installation with these extras, and of the tests."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, tests = document["project"], document["dependency-groups"]["test"]
    optional = [line for extra in extras for line in project["optional-dependencies"][extra]]
    return [Requirement(line) for line in (*project["dependencies"], *optional, *tests)]


def test_every_package_that_the_tests_ask_for_is_locked():
    names = {canonicalize_name(one.name) for one in asked()}
    assert {name for name in names if not is_left_out(name)} <= locked().keys()


def test_locked_versions_are_within_the_bounds():
    found = locked()
    versions = ((one, found.get(canonicalize_name(one.name))) for one in asked("serve", "ruler"))
    assert [str(one) for one, version in versions if version is not None and version not in one.specifier] == []


# An earlier release broke a caller here, or classes of it are subclassed, or its next major version renames arguments.
BROKE_BEFORE = {
    "click", "duckdb", "huggingface-hub", "lm-eval", "numpy", "pandas", "plotly", "transformers", "uvicorn",
}  # fmt: skip


def test_packages_that_broke_before_have_an_upper_bound():
    specifiers = [(canonicalize_name(one.name), one.specifier) for one in asked("serve", "ruler")]
    unbounded = {name for name, allowed in specifiers if not any(one.operator in ("<", "==") for one in allowed)}
    assert not unbounded & BROKE_BEFORE and {name for name, _ in specifiers} >= BROKE_BEFORE


@pytest.mark.parametrize("line", SUMS.read_text().splitlines(), ids=lambda line: line.split()[-1])
def test_reference_weights_match_their_training_hashes(line):
    digest, name = line.split()
    assert hashlib.sha256((WEIGHTS / name).read_bytes()).hexdigest() == digest


def test_every_file_of_the_weights_has_a_hash():
    found = {str(path.relative_to(WEIGHTS)) for path in WEIGHTS.rglob("*") if path.is_file()}
    assert found == {line.split()[1] for line in SUMS.read_text().splitlines()}
