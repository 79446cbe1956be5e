"""The wheel, installed alone, has suites and kernels inside and measures a suite."""

import os
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def call(*argv: object, cwd: Path) -> str:
    """Run a program without this checkout in its path. returns stdout"""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([str(word) for word in argv], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.exhaustive("the package is compiled, and a suite is measured")
def test_wheel_alone_measures_the_quickstart(tmp_path):
    build = [f"-Cbuild-dir={ROOT / 'build' / 'wheel'}", "--no-build-isolation", "--no-deps", "--no-index"]
    call(sys.executable, "-m", "pip", "wheel", ROOT, "-w", tmp_path, *build, cwd=tmp_path)
    (wheel,) = tmp_path.glob("qbench_llm-*.whl")
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    call(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    # The packages that qbench needs, by path: their .pth files are not read, so the editable install is not there.
    (packages / "needed.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    qbench = tmp_path / "venv" / "bin" / "qbench"

    where = call(python, "-c", "import qbench, cpu_kernels; print(qbench.__file__, cpu_kernels.__file__)", cwd=tmp_path)
    assert all(name.startswith(str(packages)) for name in where.split())
    table = call(qbench, "sweep", "quickstart", "-o", tmp_path / "run", cwd=tmp_path)
    assert "q4_k_m" in table and (tmp_path / "run" / "report.html").is_file()
    assert "ref_recall" in call(qbench, "eval", "ref:llama", "--tasks", "list", cwd=tmp_path)
    assert "linear_q4_0" in call(qbench, "selftest", "--only", "linear_q4_0", "-v", cwd=tmp_path)


@pytest.mark.exhaustive("the package is compiled")
def test_a_wheel_that_is_packed_again_has_the_same_bytes(tmp_path, monkeypatch):
    """With one date and one build; what the compiler does in another folder is not compared."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    build = [f"-Cbuild-dir={ROOT / 'build' / 'wheel'}", "--no-build-isolation", "--no-deps", "--no-index"]
    for name in ("first", "second"):
        call(sys.executable, "-m", "pip", "wheel", ROOT, "-w", tmp_path / name, *build, cwd=tmp_path)
    first, second = ((next((tmp_path / name).glob("*.whl"))).read_bytes() for name in ("first", "second"))
    assert first == second
