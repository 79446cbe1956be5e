"""A commit of this checkout, built next to it and kept by its hash, so that both can be measured in turn."""

import fcntl
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from qbench.measure.host.commit import ROOT
from quant.errors import InputError
from quant.present import present

# Sources of the extension.
NATIVE = ("cpu_kernels/csrc", "CMakeLists.txt")
BUILD_TOOLS = ("scikit_build_core", "nanobind")


@dataclass(frozen=True, slots=True)
class Tree:
    """Code that can be run: its interpreter, and the environment that makes it import its own packages."""

    name: str  # of the commit, or "this tree"
    python: Path
    folder: Path  # holds its measurements
    code: str | None = None  # hash of the measuring code, if earlier rows of the folder may be of other code

    @property
    def env(self) -> dict[str, str]:
        """PYTHONSAFEPATH: Python does not import a `qbench` in the working directory; children inherit this."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return kept | {"PYTHONSAFEPATH": "1"}


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qbench" / "gate"


def base_tree(ref: str, cache: Path, say=lambda line: None) -> Tree:
    """The tree of a commit, built unless `cache` holds it.

    ref      anything that git resolves to a commit of this checkout
    raises   InputError if this is no checkout, git knows no such commit, or it cannot be built
    """
    commit = resolve(ref)
    folder = cache / commit[:16]
    tree = Tree(commit[:10], folder / "venv" / "bin" / "python", folder)
    with _locked(cache, commit[:16]):
        if not (folder / "built").exists():
            say(f"building {commit[:10]} ({ref}) in {folder}, once")
            shutil.rmtree(folder, ignore_errors=True)
            _build(commit, folder)
            (folder / "built").touch()
    return tree


def resolve(ref: str) -> str:
    """The 40 digits of a commit. raises InputError"""
    if not (ROOT / ".git").exists():
        raise InputError(
            f"{ref}: no such file, and no commit can be built where qbench was not installed from a git checkout; "
            "give the records of a baseline run"
        )
    found = _run(["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}"])
    if found.returncode:
        raise InputError(f"{ref}: neither a file of records nor a commit of {ROOT}; `git fetch` may lack it")
    return found.stdout.strip()


def _build(commit: str, folder: Path) -> None:
    tree = folder / "tree"
    folder.mkdir(parents=True)
    # --force: an entry of a folder that was deleted by hand is taken over.
    _checked(["git", "-C", str(ROOT), "worktree", "add", "--force", "--detach", str(tree), commit], commit)
    if _checked_out_alike(commit):
        shutil.copy2(_extension(), tree / "cpu_kernels")
    else:
        _compile(commit, tree, folder)
    _make_venv(tree, folder / "venv")


def _checked_out_alike(commit: str) -> bool:
    """Whether the extension of this tree is of the very sources of the commit: neither changed nor new ones."""
    changed = _run(["git", "-C", str(ROOT), "diff", "--quiet", commit, "--", *NATIVE]).returncode
    others = ["git", "-C", str(ROOT), "ls-files", "--others", "--exclude-standard", "--", *NATIVE]
    return not changed and not _run(others).stdout.strip()


def _extension() -> Path:
    return Path(present(importlib.import_module("cpu_kernels._ext").__file__))


def _compile(commit: str, tree: Path, folder: Path) -> None:
    """As `make setup` does, into a folder of its own; the extension is then moved to the sources it belongs to."""
    here = all(importlib.util.find_spec(tool) for tool in BUILD_TOOLS)
    site = folder / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site)]
    command += ["--no-build-isolation"] if here else []
    command += [f"--config-settings=build-dir={folder / 'objects'}", str(tree)]
    _checked(command, commit)
    (built,) = (site / "cpu_kernels").glob("_ext*")
    shutil.move(built, tree / "cpu_kernels" / built.name)
    shutil.rmtree(site)
    shutil.rmtree(folder / "objects", ignore_errors=True)


def _make_venv(tree: Path, folder: Path) -> None:
    """An interpreter that finds the tree first, then the packages that this one uses.

    They are named as plain folders: the hooks of editable installs in them, which lead to this tree, do not run.
    """
    venv.create(folder, with_pip=False)
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "tree.pth").write_text("".join(f"{path}\n" for path in (str(tree), *packages)), encoding="locale")


@contextmanager
def _locked(cache: Path, name: str) -> Iterator[None]:
    """Two gates at once build a commit once."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(cache / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(f"{cache}: cannot write there: {error.strerror}; set XDG_CACHE_HOME") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another gate, which builds {name[:10]}", file=sys.stderr)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _checked(command: Sequence[str], commit: str) -> None:
    done = _run(command)
    if done.returncode:
        last = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()][-1:]
        why = last[0].strip() if last else f"status {done.returncode}"
        raise InputError(f"{commit[:10]} cannot be built: {' '.join(command[:4])} ...: {why}")


def _run(command: Sequence[str]) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
