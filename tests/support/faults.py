"""`python -m support.faults`: commands that are killed, or whose disk fails, at a chosen call; and the promises that
must hold then.

Run in tests/. Prints one JSON line per scenario; exit status 1 if a promise is broken.
"""

import argparse
import errno
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from support.sample_records import make_record

from qbench.runtime.tiers.block_file import HEADER_BYTES
from quant.artifacts import read_manifest

SOURCE = Path(__file__).with_name("faults.c")
TESTS = Path(__file__).parents[1]
ACKNOWLEDGED = "acknowledged"  # file in which a server that is asked counts its written blocks
CALIBRATED = ("--samples", "2", "--seq-len", "64")
# One recipe per method and container.
RECIPES = {
    "rtn-gguf": ("q4_0",),
    "rtn-hf": ("rtn-w4g128",),
    "imatrix": ("imatrix-q4_0", *CALIBRATED),
    "gptq": ("gptq-w4g128", *CALIBRATED),
    "gptq-gguf": ("gptq-q4_0", *CALIBRATED),
    "awq": ("awq-w4g128", *CALIBRATED),
    "smoothquant": ("smoothquant-w8a8", *CALIBRATED),
    "llm-int8": ("llm-int8-outliers", *CALIBRATED),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """at      number of the call that fails, from 1
    action  "kill", "short", or the number of an error
    stays   whether later calls fail, too
    """

    calls: str
    action: str
    at: int = 1
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """command  in a folder that `prepare` filled; writes below `out` there
    holds    the promise that `out` breaks after a fault, or None, given the `out` of a run without a fault
    found    contents of `out`: the same after a fault and another run as after a run without a fault
    resumes  added to the command of the run after a fault
    module   that runs the command
    killed   statuses of a command that was killed, or whose worker was
    """

    name: str
    command: tuple[str, ...]
    prepare: Callable[[Path], None]
    holds: Callable[[Path, Path], str | None]
    found: Callable[[Path], object]
    resumes: tuple[str, ...] = ()
    module: str = "qbench.cli.main"
    killed: tuple[int, ...] = (0, -signal.SIGKILL)


@cache
def library() -> Path:
    """The compiled library. raises FileNotFoundError if there is no compiler"""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        raise FileNotFoundError("needs a C compiler and Linux")
    path = Path(tempfile.mkdtemp(prefix="qbench-faults-")) / "faults.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", path, SOURCE, "-ldl"], check=True)
    return path


def run(scenario: Scenario, folder: Path, fault: Fault | None = None) -> tuple[subprocess.CompletedProcess, int]:
    """The command's end, and the number of its calls of the fault's kind (of writes without a fault)."""
    out, counted = folder / "out", folder / "count"
    counted.unlink(missing_ok=True)
    environment = os.environ | {
        "LD_PRELOAD": str(library()),
        "FAULT_UNDER": str(out),
        "FAULT_CALLS": fault.calls if fault else "write",
        "FAULT_COUNT": str(counted),
    }
    if fault is not None:
        environment |= {"FAULT_ACTION": fault.action, "FAULT_AT": str(fault.at)} | (
            {"FAULT_STAYS": "1"} if fault.stays else {}
        )
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", scenario.module, *scenario.command]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    return done, int(counted.read_text() or 0) if counted.exists() else 0


def prepared(scenario: Scenario, parent: Path, name: str) -> Path:
    folder = parent / name
    (folder / "out").mkdir(parents=True)
    scenario.prepare(folder)
    return folder


def digests(folder: Path) -> dict[str, str]:
    """Relative path -> hash of each file below the folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def whole_or_absent(out: Path, golden: Path) -> str | None:
    """A file under its own name is whole; others are temporary, and their names begin with a dot.

    A GGUF model that is there has its own manifest, which gets its name now if the kill came before that.
    """
    for model in out.glob("*.gguf"):
        if read_manifest(model) is None:
            return f"{model.name} has no manifest"
    found = {name: digest for name, digest in digests(out).items() if not name.startswith(".")}
    wrong = sorted(found.items() - digests(golden).items())
    is_part = (out / "model").is_dir() and found != digests(golden)
    return f"an artifact that is not whole: {wrong or sorted(found)}" if wrong or is_part else None


def rows_or_none(out: Path, golden: Path) -> str | None:
    """Each line of records is one of the golden lines, except for a torn last one."""
    expected = {line for path in golden.rglob("*.jsonl") for line in path.read_bytes().splitlines()}
    for path in out.rglob("*.jsonl"):
        *lines, _torn = path.read_bytes().split(b"\n")
        wrong = [line for line in lines if line and line not in expected]
        if len(wrong) > 1:
            return f"{path.name}: {len(wrong)} lines are no rows"
    return None


def kept_rows(folder: Path) -> None:
    rows = (json.dumps(make_record(recipe)) for recipe in ("bf16", "q8_0", "q4_0", "q6_k"))
    (folder / "rows.jsonl").write_text("\n".join(rows) + "\n")


def nothing(folder: Path) -> None:
    pass


def quantizing(name: str) -> Scenario:
    recipe, *more = RECIPES[name]
    target = "out/model.gguf" if "gguf" in name or name == "imatrix" else "out/model"
    command = ("quantize", "ref:llama", "--recipe", recipe, "-o", target, "--threads", "1", *more)
    return Scenario(f"quantize {name}", command, nothing, whole_or_absent, digests, ("--resume",))


def lines(out: Path) -> list[bytes]:
    """Rows that can be read."""
    found = []
    for path in sorted(out.rglob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            try:
                json.loads(line)
            except ValueError:
                continue
            found.append(line)
    return found


KEEPING = Scenario(
    "report --keep", ("report", "rows.jsonl", "--keep", "out/kept.jsonl"), kept_rows, rows_or_none, lines
)


def write_suite(folder: Path) -> None:
    """Two cases that are measured in seconds."""
    suite = "name: faults\nmodels: [rand:tiny]\nrecipes: [q8_0, q4_0]\nthreads: 1\n"
    (folder / "suite.yaml").write_text(suite + "bench: {pp: 8, tg: 4, repetitions: 2}\n")


def quality_suite(folder: Path) -> None:
    (folder / "suite.yaml").write_text(
        "name: faults\nmodels: [ref:llama]\nrecipes: [q8_0]\nthreads: 1\neval: {max_windows: 2}\n"
    )


@cache
def baseline() -> bytes:
    """Rows of the suite of `quality_suite`, measured once."""
    with tempfile.TemporaryDirectory() as parent:
        out, _ = golden_run(SAVING, Path(parent))
        return (out / "kept.jsonl").read_bytes()


def suite_and_baseline(folder: Path) -> None:
    quality_suite(folder)
    (folder / "baseline.jsonl").write_bytes(baseline())


def whole_rows(out: Path, golden: Path) -> str | None:
    """Each line of records can be read, except for a torn last one. Measured values differ from run to run."""
    for path in out.rglob("*.jsonl"):
        *rows, _torn = path.read_bytes().split(b"\n")
        for row in rows:
            try:
                json.loads(row)
            except ValueError:
                return f"{path.name}: a line that is no row: {row[:100]!r}"
    return None


def measured(out: Path) -> set[str]:
    """Keys of the cases that have a row."""
    rows = [json.loads(line) for line in lines(out)]
    return {row["key"] for row in rows if row["status"] == "ok"}


def measured_once(out: Path) -> list[str]:
    return sorted(row["key"] for row in map(json.loads, lines(out)) if row["status"] == "ok")


def answers(out: Path) -> dict:
    return json.loads((out.parent / "answers.json").read_text())


def whole_blocks(out: Path, golden: Path) -> str | None:
    """Each block under its own name has the golden bytes; no block that the store acknowledged is missing."""
    found, expected = blocks(out), blocks(golden)
    if wrong := sorted(name for name, data in found.items() if expected.get(name) != data):
        return f"{len(wrong)} blocks are not those of a run without a fault: {wrong[0]}"
    counted = out.parent / ACKNOWLEDGED
    counts = counted.read_text().split() if counted.exists() else []  # empty: killed before the first count
    acknowledged = int(counts[-1]) if counts else 0
    return f"{len(found)} blocks are there, {acknowledged} were acknowledged" if len(found) < acknowledged else None


def blocks(out: Path) -> dict[str, bytes]:
    """Relative path -> keys and values of each block in the store."""
    files = (path for path in out.rglob("*-*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(out)): path.read_bytes()[HEADER_BYTES:] for path in files}


# A worker that is killed is a case that failed: the sweep says so and goes on, and a baseline is refused.
SWEEPING = Scenario(
    "sweep",
    ("sweep", "suite.yaml", "-o", "out"),
    write_suite,
    whole_rows,
    measured_once,
    killed=(0, 1, -signal.SIGKILL),
)
SAVING = Scenario(
    "gate --save",
    ("gate", "--suite", "suite.yaml", "--save", "out/kept.jsonl", "-o", "out/run"),
    quality_suite, whole_rows, measured, killed=(0, 2, -signal.SIGKILL),
)  # fmt: skip
GATING = Scenario(
    "gate --keep",
    ("gate", "--suite", "suite.yaml", "--baseline", "baseline.jsonl", "--keep", "out/kept.jsonl", "-o", "out/run"),
    suite_and_baseline, whole_rows, measured, killed=(0, 1, 2, -signal.SIGKILL),
)  # fmt: skip
SERVING = Scenario("serve", ("out/store",), nothing, whole_blocks, answers, module="support.asked_server")
SCENARIOS = (*map(quantizing, RECIPES), KEEPING, SERVING, SWEEPING, SAVING, GATING)


def outcome(scenario: Scenario, golden: Path, parent: Path, fault: Fault) -> str | None:
    """The promise that is broken by the fault and a run after it, or None.

    After a kill or a full disk nothing under the artifact's own name is half there; a run without the fault then ends
    in the same bytes as one without a fault before it, and leaves nothing else.
    """
    folder = prepared(scenario, Path(tempfile.mkdtemp(dir=parent)), "faulty")
    done, _ = run(scenario, folder, fault)
    broken = wrong_end(scenario, fault, done) or scenario.holds(folder / "out", golden)
    if broken is not None:
        return broken
    again, _ = run(replace(scenario, command=(*scenario.command, *scenario.resumes)), folder)
    if again.returncode != 0:
        return f"the run after it: status {again.returncode}: {again.stderr[-300:]}"
    found, expected = scenario.found(folder / "out"), scenario.found(golden)
    shutil.rmtree(folder)
    return None if found == expected else f"the run after it ends in something else: {found} instead of {expected}"


def wrong_end(scenario: Scenario, fault: Fault, done: subprocess.CompletedProcess) -> str | None:
    """How a command may not end; after an error of the disk it may also end with a reason."""
    may = {"kill": scenario.killed, "short": (0,)}.get(fault.action, (0, 2))
    if done.returncode not in may or "Traceback" in done.stderr:
        return f"status {done.returncode}: {done.stderr[-300:]}"
    if done.returncode == 2 and not done.stderr.strip().splitlines()[-1].startswith("qbench: "):
        return f"no reason is given: {done.stderr[-300:]}"
    return None


def faults(rng: random.Random, num_calls: int, count: int) -> list[Fault]:
    """Kills at random calls."""
    return [Fault("write", "kill", rng.randint(1, max(num_calls, 1))) for _ in range(count)]


def broken_disks(num_calls: int) -> list[Fault]:
    """A disk that is full, read-only or broken from the middle on, and reads and writes that are cut short."""
    middle = max(num_calls // 2, 1)
    errors = (errno.ENOSPC, errno.EROFS, errno.EIO)
    return [
        *(Fault("write", str(number), middle, stays=True) for number in errors),
        Fault("write", str(errno.EIO), max(num_calls, 1)),
        Fault("write", "short"),
        Fault("read", "short"),
    ]


def golden_run(scenario: Scenario, parent: Path) -> tuple[Path, int]:
    folder = prepared(scenario, parent, "golden")
    done, num_calls = run(scenario, folder)
    assert done.returncode == 0, done.stderr
    return folder / "out", num_calls


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="scenarios whose name has this text")
    options = parser.parse_args(argv)
    rng, status = random.Random(options.seed), 0
    chosen = [one for one in SCENARIOS if not options.only or options.only in one.name]
    for scenario in chosen:
        with tempfile.TemporaryDirectory() as parent:
            golden, num_calls = golden_run(scenario, Path(parent))
            kills = faults(rng, num_calls, -(-options.kills // len(chosen)))
            broken = []
            for fault in (*kills, *broken_disks(num_calls)):
                if (why := outcome(scenario, golden, Path(parent), fault)) is not None:
                    broken.append({"fault": repr(fault), "why": why})
        row = {"scenario": scenario.name, "calls": num_calls, "kills": len(kills), "broken": broken}
        print(json.dumps(row), flush=True)
        status = status or int(bool(broken))
    return status


if __name__ == "__main__":
    sys.exit(main())
