"""The end of the process of a command."""

import subprocess
import sys

import pytest

CODE = """
import gc, os, tempfile
import qbench.cli.main
gc.disable()

class Told:
    def __del__(self):
        os.write(1, b"collected ")

garbage = Told()
garbage.itself = garbage
del garbage
left = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
print(left.name, end=" ", flush=True)
import atexit
atexit.register(lambda: os.write(1, b"called "))
import cpu_kernels
kept = [cpu_kernels.op_table()]
kept.append(kept)
"""


def test_the_end_prints_nothing_if_triton_was_there():
    pytest.importorskip("triton")
    code = "import qbench.cli.main, triton.compiler"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_end_collects_no_garbage_but_runs_exit_handlers(tmp_path):
    """Garbage in a circle is found only by a search among all objects, which the end of a program is not worth."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env={"TMPDIR": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[1:] == ["called"] and not list(tmp_path.iterdir())
