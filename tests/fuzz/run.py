"""Fuzz every target for a while, print the counts, and keep the inputs that failed.

python -m fuzz.run [--seconds S] [--cases N] [--first N] [TARGET...], in tests/, as `make fuzz` does. Exit status 1 if a
case failed.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fuzz.targets import TARGETS

# A worker without progress is killed after so many seconds of its CPU time, or of the clock if it only waits. It stops
# itself after 5 of CPU time. On a busy machine it may wait for minutes.
WATCH_CPU_SECONDS, WATCH_SECONDS = 20, 900
POLL_SECONDS = 2
COLUMNS = ("cases", "loads", "accepted", "refused", "crash", "hang", "growth", "traceback")
FAULTS = ("crash", "hang", "growth", "traceback")
CORPUS = Path(__file__).parent / "corpus"


def fuzz(name: str, seconds: float, most: int, first: int, keep: bool) -> tuple[Counter, dict]:
    """Counts and faults of one target. A worker that dies is started again behind its case."""
    counts, faults = Counter(), {}
    end, number = time.monotonic() + seconds, first
    with tempfile.NamedTemporaryFile() as progress:
        while (left := end - time.monotonic()) > 0 and number < first + most:
            progress.seek(0)
            progress.write(number.to_bytes(8, "little"))
            progress.flush()
            flags = ("-S", "-P") if sys.flags.no_site else ()  # with AddressSanitizer, see Makefile
            command = [
                sys.executable,
                *flags,
                "-m",
                "fuzz.worker",
                name,
                number,
                max(1, int(left)),
                first + most - number,
            ]
            with subprocess.Popen([*map(str, command), progress.name], stdout=subprocess.PIPE, text=True) as worker:
                output = watched(worker, Path(progress.name), left)
            at = int.from_bytes(Path(progress.name).read_bytes()[:8], "little")
            try:
                told = json.loads(output)
            except ValueError:
                if at == number and counts["cases"] == 0 and not counts["crash"]:
                    raise SystemExit(f"fuzz: the worker of {name} did not start; run `python -m fuzz.worker`") from None
                kind = "hang" if worker.returncode == -9 else "crash"
                counts.update({"cases": at - number + 1, kind: 1})
                faults[f"case {at}: status {worker.returncode}"] = {"kind": kind, "number": at, "input": ""}
                number = at + 1
                continue
            counts.update(told["counts"])
            faults |= {place: fault for place, fault in told["faults"].items() if place not in faults}
            number = told["next"]
    if keep:
        keep_inputs(name, faults)
    return counts, faults


def watched(worker: subprocess.Popen, progress: Path, seconds: float) -> str:
    """The worker's output; it is killed if it makes no progress, or long after its time."""
    seen, since, spent, end = b"", time.monotonic(), 0.0, time.monotonic() + seconds + WATCH_SECONDS
    while True:
        try:
            return worker.communicate(timeout=POLL_SECONDS)[0]
        except subprocess.TimeoutExpired:
            now, used, content = time.monotonic(), cpu_seconds(worker.pid), progress.read_bytes()
            if content != seen:
                seen, since, spent = content, now, used
            if now > end or now - since > WATCH_SECONDS or used - spent > WATCH_CPU_SECONDS:
                worker.kill()


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, or had used when it ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def keep_inputs(name: str, faults: dict) -> None:
    """Write each failing input, of 64 kB at most, where the next runs begin and the tests look."""
    CORPUS.mkdir(exist_ok=True)
    for fault in faults.values():
        raw = bytes.fromhex(fault["input"])
        if 0 < len(raw) <= 1 << 16:
            (CORPUS / f"{name}-{hashlib.sha256(raw).hexdigest()[:12]}").write_bytes(raw)


def print_counts(name: str, counts: Counter) -> None:
    """One line; the last column is CPU time of mutating and running a case."""
    cost = f"{counts['cpu_ms'] / max(1, counts['cases']):.2f}"
    print(name.ljust(18), *(str(counts[column]).rjust(9) for column in COLUMNS), cost.rjust(9), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*", default=list(TARGETS), metavar="TARGET")
    parser.add_argument("--seconds", type=float, default=60, help="in all, shared by the targets")
    parser.add_argument("--cases", type=int, default=1_000_000, help="at most, of each target")
    parser.add_argument("--first", type=int, default=0, help="number of the first case: others than before")
    parser.add_argument("--keep", action="store_true", help="write failing inputs to tests/fuzz/corpus")
    options = parser.parse_args()
    unknown = [name for name in options.targets if name not in TARGETS]
    if unknown:
        parser.error(f"no target {unknown[0]}; targets are {', '.join(TARGETS)}")
    total, found = Counter(), 0
    print("target".ljust(18), *(column.rjust(9) for column in (*COLUMNS, "ms/case")), flush=True)
    for name in options.targets:
        share = options.seconds / len(options.targets)
        counts, faults = fuzz(name, share, options.cases, options.first, options.keep)
        total += counts
        print_counts(name, counts)
        for place, fault in faults.items():
            print(f"  {fault['kind']} in case {fault['number']}: {place}", flush=True)
        found += sum(counts[kind] for kind in FAULTS)
    print_counts("all", total)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
