"""A commit of a small repository, built separately: its own code runs, whatever surrounds it."""

import subprocess
import sys

import pytest

from qbench.gate import base_commit
from qbench.gate.base_commit import base_tree
from quant.errors import InputError


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Two commits of a `qbench` that says which it is; the second is checked out."""
    root = tmp_path / "checkout"
    (root / "cpu_kernels" / "csrc").mkdir(parents=True)
    (root / "cpu_kernels" / "csrc" / "sum.cpp").write_text("int sum();\n")
    (root / "qbench").mkdir()
    git(root, "init", "--quiet")
    for name in ("first", "second"):
        (root / "qbench" / "__init__.py").write_text(f"name = {name!r}\n")
        git(root, "add", ".")
        git(root, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "--quiet", "-m", name)
    monkeypatch.setattr(base_commit, "ROOT", root)
    return root


def git(root, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(root), *arguments], check=True)


def name_by(tree, cwd) -> str:
    code = "import qbench, cpu_kernels._ext; print(qbench.name)"
    done = subprocess.run([tree.python, "-c", code], cwd=cwd, env=tree.env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_code_of_the_commit_runs_from_any_folder(checkout, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(checkout))
    said = []
    tree = base_tree("HEAD~1", tmp_path / "cache", said.append)
    assert name_by(tree, cwd=checkout) == name_by(tree, cwd=tmp_path) == "first"
    assert len(said) == 1 and "HEAD~1" in said[0]
    assert base_tree("HEAD~1", tmp_path / "cache", said.append) == tree and len(said) == 1  # built once


def test_a_build_that_was_cut_short_is_made_again(checkout, tmp_path):
    tree = base_tree("HEAD~1", tmp_path / "cache")
    (tree.folder / "built").unlink()
    (tree.folder / "tree" / "qbench" / "__init__.py").unlink()
    assert name_by(base_tree("HEAD~1", tmp_path / "cache"), cwd=tmp_path) == "first"


def test_other_sources_of_the_extension_are_compiled(checkout, tmp_path, monkeypatch):
    compiled = []

    def compile(commit, tree, folder):
        compiled.append((tree / "cpu_kernels" / "csrc" / "sum.cpp").read_text())

    monkeypatch.setattr(base_commit, "_compile", compile)
    (checkout / "cpu_kernels" / "csrc" / "sum.cpp").write_text("long sum();\n")
    base_tree("HEAD", tmp_path / "cache")
    assert compiled == ["int sum();\n"]


@pytest.mark.skipif(sys.platform != "linux", reason="a read-only file stands for a folder that cannot be made")
def test_a_failed_build_is_reported_in_one_line(checkout, tmp_path):
    with pytest.raises(InputError, match="no-such-branch: neither a file of records nor a commit"):
        base_tree("no-such-branch", tmp_path / "cache")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write there"):
        base_tree("HEAD", tmp_path / "file")


def test_without_a_checkout_only_records_can_be_a_baseline(tmp_path, monkeypatch):
    monkeypatch.setattr(base_commit, "ROOT", tmp_path)
    with pytest.raises(InputError, match="give the records of a baseline run"):
        base_tree("main", tmp_path / "cache")
