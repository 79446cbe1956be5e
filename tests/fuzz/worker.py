"""One process that runs the cases of one target: bounded memory, bounded time, and counts at its end.

python -m fuzz.worker TARGET FIRST_CASE SECONDS MOST_CASES PROGRESS_FILE
"""

import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random

from fuzz.target import ACCEPTED, FORWARD, REFUSALS, Target
from fuzz.targets import TARGETS, corpus_of

SECONDS_PER_CASE = 5  # of this process's CPU time, so that a busy machine makes no hang
MORE_BYTES = 1 << 30  # that a case may take beyond the process before it


class Hang(BaseException):
    """A case took SECONDS_PER_CASE."""


def raise_hang(*_) -> None:
    raise Hang


def case_input(target: Target, seeds: list[bytes], name: str, number: int) -> bytes:
    """The input of a case: it depends on its number and the seeds alone."""
    rng = Random(f"{name} {number}")
    return target.mutate(rng, seeds[rng.randrange(len(seeds))])


def outcome(target: Target, raw: bytes) -> tuple[str, str]:
    """(kind, place): "accepted", "forward", "refused", "hang", "growth" or "traceback", and the line that raised."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS_PER_CASE)
    try:
        return target.run(raw), ""
    except REFUSALS as error:
        return ("refused", "") if len(str(error)) <= 5000 else ("traceback", "a message of more than 5000 characters")
    except Hang:
        return "hang", place_of(sys.exc_info()[2])
    except MemoryError:
        return "growth", place_of(sys.exc_info()[2])
    except RuntimeError as error:
        kind = "growth" if "alloc" in str(error) else "traceback"  # torch's own words for no memory
        return kind, f"{type(error).__name__}: {str(error)[:150]} at {place_of(error.__traceback__)}"
    except BaseException as error:
        return "traceback", f"{type(error).__name__}: {str(error)[:150]} at {place_of(error.__traceback__)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def outcomes(target: Target, inputs: list[bytes]) -> list[tuple[bytes, str, str]]:
    """(input, kind, place) of each, in the order of the target's groups."""
    return [found for group in target.groups(inputs) for found in _of_group(target, group)]


def _of_group(target: Target, group: list[bytes]) -> list[tuple[bytes, str, str]]:
    """A group that is not accepted runs again in halves, down to the inputs that are the reason."""
    kind, place = outcome(target, b"\n".join(group))
    if kind == ACCEPTED or len(group) == 1:
        return [(raw, kind, place) for raw in group]
    middle = len(group) // 2
    return _of_group(target, group[:middle]) + _of_group(target, group[middle:])


def place_of(trace) -> str:
    """File and line of the innermost frame of ours."""
    frames = [frame for frame in traceback.extract_tb(trace) if "site-packages" not in frame.filename]
    inner = frames[-1]
    return f"{Path(inner.filename).name}:{inner.lineno}"


def main() -> None:
    name, first, seconds, most, progress_path = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
    signal.signal(signal.SIGPROF, raise_hang)
    out, counts, faults = os.fdopen(os.dup(1), "w"), Counter(), {}
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    with tempfile.TemporaryDirectory() as folder, open(progress_path, "r+b", buffering=0) as progress:
        target = TARGETS[name](Path(folder))
        seeds = target.seeds()
        target.run(seeds[0])
        seeds += corpus_of(name)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MORE_BYTES, size + MORE_BYTES))
        end, number, spent = time.monotonic() + seconds, first, time.process_time()
        while time.monotonic() < end and number < first + most:
            progress.seek(0)
            progress.write(number.to_bytes(8, "little"))
            numbers = range(number, min(number + target.at_once, first + most))
            inputs = [case_input(target, seeds, name, each) for each in numbers]
            with contextlib.redirect_stderr(None), contextlib.redirect_stdout(None):
                found = outcomes(target, inputs)
            for raw, kind, place in found:
                counts["cases"] += 1
                counts[kind] += 1
                counts["loads"] += kind == FORWARD
                if place and place not in faults:
                    at = number + inputs.index(raw)
                    faults[place] = {"kind": kind, "number": at, "input": raw.hex() if len(raw) < 1 << 20 else ""}
            number += len(inputs)
    counts["cpu_ms"] = round(1e3 * (time.process_time() - spent))
    out.write(json.dumps({"counts": counts, "faults": faults, "next": number}))
    out.close()
    os._exit(0)  # threads of a server do not matter any more


if __name__ == "__main__":
    main()
