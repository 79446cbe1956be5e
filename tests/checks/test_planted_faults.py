"""The planter on a project of one module: a fault that is found, some that are not, and some that cannot be planted."""

import subprocess
import time

import pytest
import yaml
from support.data import REPO
from support.waits import WAIT_S

from checks.planted_faults import FAULTS, main
from checks.planting.search import Runs
from checks.planting.tree import copied

MODULE = """
def double(x):
    return 2 * x


def triple(x):
    return 3 * x


def untested(x):
    return 5 * x
"""
TESTS = """
import pytest
from project.numbers import double, triple


def test_double():
    assert double(2) == 4


@pytest.mark.exhaustive
def test_triple():
    assert triple(2) == 6
"""
CONFIG = "[pytest]\npythonpath = .\nmarkers = exhaustive: only in the long run\n"
FOUND = {"id": "doubled", "file": "project/numbers.py", "kind": "wrong constant", "old": "2 * x", "new": "3 * x"}
FOUND_LATE = FOUND | {"id": "tripled", "old": "3 * x", "new": "4 * x"}
MISSED = FOUND | {"id": "missed", "old": "5 * x", "new": "6 * x"}


@pytest.fixture
def project(tmp_path):
    """A committed repository with a module, its tests, and no faults yet."""
    (tmp_path / "project").mkdir()
    (tmp_path / "tests/project").mkdir(parents=True)
    (tmp_path / FAULTS).mkdir(parents=True)
    (tmp_path / "project/numbers.py").write_text(MODULE)
    (tmp_path / "tests/project/test_numbers.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(CONFIG)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", "-A"], check=True)
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", tmp_path, *author, "commit", "-qm", "a: b"], check=True)
    return tmp_path


@pytest.fixture
def plant(project, capsys, monkeypatch):
    """plant(faults): the exit status, stdout and stderr"""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # qbench's own plugin is not in that project

    def run(*faults, options=(), timeout_s=WAIT_S):
        (project / FAULTS / "faults.yaml").write_text(yaml.safe_dump(list(faults)))
        status = main(options, project, Runs(timeout_s=timeout_s))
        return status, *capsys.readouterr()

    return run


def test_each_run_is_credited_with_its_findings(plant, project):
    status, out, _ = plant(FOUND, FOUND_LATE, MISSED)
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[3:] for line in out.splitlines() if " | " in line}
    test = "tests/project/test_numbers.py::test_"
    assert rows["doubled"] == ["found", "found", f"{test}double |"]
    assert rows["tripled"] == ["**missed**", "found", f"{test}triple |"]
    assert rows["missed"][:2] == ["**missed**", "**missed**"]
    assert "3 faults: test finds 1 (33%), test-all finds 2 (67%)" in out
    assert status == 1
    assert (project / "project/numbers.py").read_text() == MODULE


def test_it_passes_if_all_are_found(plant):
    status, out, _ = plant(FOUND)
    assert status == 0 and "1 faults: test finds 1 (100%), test-all finds 1 (100%)" in out


def test_no_compiled_module_outlives_its_source(project, monkeypatch):
    """A fault of the same length, planted in the same second, is not hidden by the module before it."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    with copied(project) as tree:
        assert tree.run([tree.python, "-c", "import project.numbers"]).status == 0
        assert not list(tree.root.glob("project/**/*.pyc"))


def test_only_the_named_faults_are_planted(plant):
    assert plant(FOUND, MISSED, options=["--only", "doubled"])[0] == 0
    status, _, err = plant(FOUND, options=["--only", "doublet"])
    assert (status, err) == (2, "no fault is called doublet\n")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"old": "7 * x"}, "holds '7 * x' 0 times"),
        ({"old": "* x"}, "holds '* x' 3 times"),
        ({"new": "2 * ("}, "is no Python with the fault"),
        ({"file": "project/letters.py"}, "holds '2 * x' 0 times"),
        ({"tests": ["tests/none.py"]}, "tests/none.py does not exist"),
    ],
)
def test_a_fault_that_cannot_be_planted_is_an_error(plant, change, problem):
    status, out, err = plant(FOUND | change)
    assert (status, out) == (2, "") and problem in err and err.count("\n") == 1


def test_two_faults_with_one_id_are_an_error(plant):
    assert "two faults have this id" in plant(FOUND, FOUND)[2]


def test_a_fault_that_breaks_the_import_does_not_count(plant):
    status, out, _ = plant(FOUND | {"old": "def triple", "new": "def quadruple"})
    assert status == 2 and "| unusable | unusable | the tests cannot be collected" in out


def test_tests_that_fail_without_a_fault_end_the_search(plant, project):
    (project / "project/numbers.py").write_text(MODULE.replace("2 * x", "x"))
    status, _, err = plant(MISSED)
    assert (status, err) == (
        2, "without any fault tests/project/test_numbers.py::test_double fails; make the tests pass first\n",
    )  # fmt: skip


def test_a_test_that_hangs_finds_its_fault(plant):
    began = time.monotonic()
    plant(FOUND)  # several runs, on this machine at this load
    several_s = time.monotonic() - began
    status, out, _ = plant(FOUND | {"new": "exec('while True: pass')"}, timeout_s=3 * several_s)
    assert status == 0 and "| found | found | a test that did not end |" in out


def test_the_faults_of_this_project_can_be_planted(capsys):
    assert main(["--check"], REPO) == 0, capsys.readouterr().err
