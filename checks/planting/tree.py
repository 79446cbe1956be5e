"""A copy of the project in which faults are planted: a git worktree with its own interpreter and extension."""

import importlib.util
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from checks.planting.fault import Fault, UnusableFault

EXTENSION = "cpu_kernels"
BUILD = "build/planted"


@dataclass(frozen=True, slots=True)
class Done:
    """status: the exit status; None if the command ran out of time"""

    status: int | None
    output: str


@dataclass(frozen=True, slots=True)
class Tree:
    root: Path

    @property
    def python(self) -> str:
        return str(self.root / ".venv/bin/python")

    def run(self, command: Sequence[str], timeout_s: float | None = None) -> Done:
        """Runs the command in the tree and ends whatever it left running.

        Python keeps no compiled modules there: one that was compiled in the second in which a fault of equal length is
        planted would be taken for the new source.
        """
        process = subprocess.Popen(
            command, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", start_new_session=True, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=timeout_s)
            return Done(process.returncode, output)
        except subprocess.TimeoutExpired:
            return Done(None, "")
        finally:
            end_group(process.pid)
            process.wait()

    def build(self) -> None:
        """Compiles the extension from the tree's sources; ninja compiles only files that changed.

        raises  UnusableFault if the sources do not compile
        """
        build = self.root / BUILD
        if not build.exists():
            tools = build / "tools"
            self._must([sys.executable, "-m", "pip", "install", "-q", "--target", str(tools), "nanobind", *_absent()])
            self._must([
                _tool("cmake", tools), "-S", ".", "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                f"-DCMAKE_MAKE_PROGRAM={_tool('ninja', tools)}", f"-DPython_EXECUTABLE={self.python}",
                f"-Dnanobind_DIR={tools / 'nanobind/cmake'}",
            ])  # fmt: skip
        self._must([_tool("cmake", build / "tools"), "--build", BUILD, "--target", "_ext"])
        for library in build.glob("_ext*.so"):
            fresh = self.root / EXTENSION / f"{library.name}.new"
            shutil.copy(library, fresh)
            os.replace(fresh, fresh.with_suffix(""))  # not written over: a process may have it mapped

    def _must(self, command: Sequence[str]) -> None:
        done = self.run(command)
        if done.status:
            raise UnusableFault("\n".join(done.output.splitlines()[-20:]))


@contextmanager
def copied(root: Path) -> Iterator[Tree]:
    """A tree of the tracked files at `root` as they are now, committed or not; it is removed at the end."""
    git = ["git", "-C", str(root)]
    stashed = subprocess.run([*git, "stash", "create"], capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="planted-faults-") as folder:
        tree = Tree(Path(folder))
        add = [*git, "worktree", "add", "--quiet", "--detach", str(tree.root), stashed or "HEAD"]
        subprocess.run(add, check=True)
        try:
            _own_interpreter(tree)
            yield tree
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(tree.root)], check=False)


def _own_interpreter(tree: Tree) -> None:
    """An interpreter that finds the tree's packages first, then the packages that are installed here.

    Paths in a .pth file are not searched for .pth files, so an editable install here is not seen there.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tree.root / ".venv")], check=True)
    (packages,) = (tree.root / ".venv").glob("lib/python3*/site-packages")
    borrowed = [path for path in (*site.getsitepackages(), *_borrowed()) if Path(path).is_dir()]
    (packages / "tree.pth").write_text("\n".join([str(tree.root), *borrowed]) + "\n")
    found = importlib.util.find_spec(f"{EXTENSION}._ext") if (tree.root / EXTENSION).is_dir() else None
    if found is not None and found.origin is not None:
        for library in Path(found.origin).parent.glob("*.so"):
            shutil.copy(library, tree.root / EXTENSION)


def _borrowed() -> list[str]:
    """Folders of packages that this interpreter searches besides its own."""
    return [path for path in sys.path if path.endswith("site-packages")]


def _absent() -> list[str]:
    return [name for name in ("cmake", "ninja") if shutil.which(name) is None]


def _tool(name: str, tools: Path) -> str:
    return shutil.which(name) or str(tools / "bin" / name)


def end_group(pid: int) -> None:
    """Ends the process, its descendants (ninja gives each a group of its own), and all others of its group."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


@contextmanager
def fault_in(tree: Tree, fault: Fault) -> Iterator[None]:
    """The tree has the fault inside the block, compiled if need be. raises UnusableFault"""
    try:
        with fault.planted(tree.root):
            if fault.is_compiled:
                tree.build()
            yield
    finally:
        if fault.is_compiled:
            tree.build()
