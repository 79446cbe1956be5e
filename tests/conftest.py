"""Options of a run (a sample of large parameter grids), and at its end which tests did not run on this machine."""

import json
import os
import tempfile
from pathlib import Path

import pytest
from support.file_seconds import file_seconds, seconds_table
from support.not_exercised import not_run, table
from support.sampling import GRID, sample_grids

import cpu_kernels

# Each worker of a parallel run has one core to itself, so more threads of torch would wait for one another.
# The variable is read when torch is first imported, also by child processes.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A table of `qbench tune` in the home of whoever runs the tests would change which path runs.
os.environ.setdefault("QBENCH_TUNING", "off")

# Triton and the Hugging Face libraries keep caches at home. They read these variables when they are first imported.
CACHES = {"TRITON_HOME": "triton", "HF_HOME": "huggingface"}
if not os.access(Path.home(), os.W_OK):
    _caches = tempfile.TemporaryDirectory(prefix="qbench-caches-")  # removed when the run ends
    for _name, _folder in CACHES.items():
        os.environ.setdefault(_name, f"{_caches.name}/{_folder}")


def pytest_addoption(parser: pytest.Parser) -> None:
    help_text = "Keep at most N parameter sets per test function, and at least one per parameter value."
    parser.addoption("--grid", type=int, metavar="N", help=help_text)
    parser.addoption("--keep-seconds", type=Path, metavar="FILE", help="Write the seconds of each test file as JSON.")


@pytest.fixture
def inputs_of_8_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds the inputs of products to 8 bits, for any number of tokens and as llama.cpp does.

    Processors with AMX give many tokens inputs in bfloat16 instead, which are closer to the weights' own result. On
    q8_0 of stories260K the 8 bits alone move llama.cpp's perplexity by 0.9 % from that in float32, bfloat16 by 0.1 %.
    """
    monkeypatch.setenv("QBENCH_LINEAR_PATH", "tile")


@pytest.hookimpl(tryfirst=True)  # before -m chooses by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    quick = [item for item in items if item.get_closest_marker("exhaustive") is None]
    for item in {*quick} - sample_grids(quick, GRID):
        item.add_marker(pytest.mark.exhaustive("outside the sample of its grid"))
    most = config.getoption("--grid")
    if most is not None:
        kept = sample_grids(items, most)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = not_run(terminalreporter.stats.get("skipped", []))
    terminalreporter.section("not exercised on this machine")
    pretended = os.environ.get("QBENCH_CPU")
    cpu = f"{', '.join(cpu_kernels.features())}" + (f" (QBENCH_CPU={pretended})" if pretended else "")
    terminalreporter.line(f"processor: {cpu}; {len(skipped)} tests did not run")
    for line in table(skipped):
        terminalreporter.line(line)
    terminalreporter.section("seconds per file")
    stats = terminalreporter.stats
    reports = [report for name in ("", "passed", "failed", "error", "skipped") for report in stats.get(name, [])]
    seconds = file_seconds(reports)
    for line in seconds_table(seconds):
        terminalreporter.line(line)
    if (kept := terminalreporter.config.getoption("--keep-seconds")) is not None:
        kept.parent.mkdir(exist_ok=True)
        rounded = {name: round(count, 1) for name, count in seconds.most_common()}
        kept.write_text(json.dumps({"processor": cpu, "seconds": rounded}))
