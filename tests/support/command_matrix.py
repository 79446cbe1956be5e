"""`python -m support.command_matrix`: odd command lines, made from click's commands; no traceback, hang or odd status.

Run in tests/. Each line runs in a fork of a process that has imported the commands, with limits on CPU time and memory.
Prints one JSON object: lines by exit status, and those that break a rule; exit status 1 if there are any.
"""

import argparse
import json
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from support.documents import make_record
from support.memory_source import MemorySource

# Imported before the forks, which then start in milliseconds; no tensor is computed here, or a fork would lack threads.
import qbench.calibration.open_subject
import qbench.report.write
import qbench.runtime
import qbench.store.load
import qbench.sweeps  # noqa: F401
from qbench.cli.main import COMMANDS, cli
from qbench.cli.main import main as qbench_main
from quant.artifacts.gguf_writer import write_gguf

MOST_CPU_S = 5
MOST_WALL_S = 300  # of a loaded machine: a process that waits without CPU time
MORE_BYTES = 4 << 30
STATUSES = (0, 1, 2)
UNICODE = "na\u00efve \u6a21\u578b\U0001f642\u202e"
HUGE = "9" * 30
NUMBERS = ("nan", "-1", HUGE, "", "1e400", "0", "-inf", "0x10", UNICODE)
TEXTS = ("no-such-name", "", UNICODE, "x" * 5000, "-1", "a\nb", "nan", "folder", "absent/file")
PATHS = ("absent/file", "folder", "loop", "/proc/self/mem", "", UNICODE, "junk", "junk.jsonl", "x" * 5000)
NUMBER_TYPES = ("Int", "Float", "FiniteRange", "MemorySize", "Percentage", "ByteCount", "PolicyDepths", "CaseLimit")
MEASURING = ("info", "kernels", "selftest", "mla", "tune")  # even without arguments
# The arguments of a line whose other words are right; it does little work if they all are.
RIGHT = {
    "models": (),
    "quantize": ("rand:tiny", "--recipe", "q8_0", "-o", "out.gguf"),
    "inspect": ("rand:tiny",),
    "doctor": ("model.gguf",),
    "verify": ("model.gguf",),
    "eval": ("ref:llama", "--text", "short.txt", "--protocol", "windows-64", "--windows", "1"),
    "bench": ("rand:tiny", "-p", "4", "-n", "1", "-r", "1"),
    "race": ("rand:tiny", "--cache", "static,dynamic", "-p", "4", "-n", "1", "-r", "1"),
    "breakdown": ("rand:tiny", "-n", "1"),
    "sweep": ("suite.yaml", "--dry-run"),
    "plan": ("rand:tiny",),
    "recommend": ("ref:llama", "--memory", "1", "--windows", "1"),
    "report": ("rows.jsonl",),
    "compare": ("rows.jsonl", "rows.jsonl"),
    "query": ("select 1", "--records", "rows.jsonl"),
    "gate": ("--suite", "absent.yaml", "--baseline", "rows.jsonl"),
    "generate": ("ref:llama", "--prompt", "x", "-n", "1"),
    "serve": ("absent-model",),  # a server that starts would not end
    "engine": ("rand:tiny", "--requests", "1", "--prompt", "2,2", "--new", "1,1"),
    "breakeven": ("rand:tiny", "--list"),
    "mla": ("absent-model",),
    "tune": ("--show",),
    "kernels": ("--only", "absent-kernel"),
    "selftest": ("--only", "absent-kernel"),
    "completion": ("bash",),
}


@dataclass(frozen=True, slots=True)
class Ended:
    """status: of the process; negative: the signal that ended it"""

    line: tuple[str, ...]
    status: int
    cpu_s: float
    err: str

    @property
    def fault(self) -> str | None:
        """The rule that the line breaks, or None."""
        if "Traceback" in self.err or "internal error" in self.err:
            return "traceback"
        if self.status == -signal.SIGXCPU or self.cpu_s > MOST_CPU_S:
            if HUGE in self.line:
                return None  # as many rounds as that were asked for
            return f"more than {MOST_CPU_S} s of CPU time"
        if self.status not in STATUSES:
            return f"status {self.status}"
        if self.status == 2 and not self.err.splitlines()[-1].startswith("qbench: "):
            return "no reason is given"
        return None


def command_lines() -> list[tuple[str, ...]]:
    """Each argument with all odd words, each option with two of them in turn, and no or unknown words."""
    lines: list[tuple[str, ...]] = [("no-such-command",), (UNICODE,), ("",), ("--no-such-option",)]
    turn = 0
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        right = RIGHT.get(name, ())
        lines += [(name, "--no-such-option", *right), (name, *right, "one", "two", "word too many")]
        lines += [(name,)] if name not in MEASURING else []
        for parameter in command.params:
            words = odd_words(parameter)
            if isinstance(parameter, click.Argument):
                lines += [(name, word, *right[1:]) for word in words]
            elif words:
                option = max(parameter.opts, key=len)
                for _ in range(2):
                    lines.append((name, *right, option, words[turn % len(words)]))
                    turn += 1
    return lines


def odd_words(parameter: click.Parameter) -> tuple[str, ...]:
    kind = type(parameter.type).__name__
    if getattr(parameter, "is_flag", False):
        return ()
    if kind.startswith(NUMBER_TYPES):
        return NUMBERS
    return PATHS if kind in ("Path", "KeepPath") else TEXTS


def prepare(folder: Path, model: Path) -> None:
    """Files that the lines name."""
    (folder / "model.gguf").hardlink_to(model)
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "short.txt").write_text("Once upon a time there was a small engine. " * 20)
    (folder / "junk").write_bytes(bytes(range(256)) * 8)
    (folder / "junk.jsonl").write_text('{"a": 1}\nnull\n[')
    (folder / "rows.jsonl").write_text(json.dumps(make_record({"model": "m", "recipe": "q8_0"}, {"perplexity": 1.5})))
    (folder / "suite.yaml").write_text("name: odd\nmodels: [rand:tiny]\nrecipes: [q8_0]\nbench: {pp: 4, tg: 1}\n")


def run(line: Sequence[str], folder: Path) -> Ended:
    """The end of the line in a fork of this process, in a folder of its own files."""
    with tempfile.TemporaryFile() as err, open(os.devnull, "r+b") as nothing:
        child = os.fork()
        if not child:
            _be_command(line, folder, err.fileno(), nothing.fileno())
        _, status, usage = os.wait4(child, 0)
        err.seek(0)
        text = err.read().decode(errors="replace")
    return Ended(tuple(line), os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, text)


def _be_command(line: Sequence[str], folder: Path, err: int, nothing: int) -> None:
    status = 70
    try:
        os.chdir(folder)
        for descriptor, file in ((0, nothing), (1, nothing), (2, err)):
            os.dup2(file, descriptor)
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + MORE_BYTES, held + MORE_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S + 1, MOST_CPU_S + 3))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(MOST_WALL_S)
        sys.argv[1:] = line
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
        status = qbench_main(list(line))
        sys.stdout.flush()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def sample(lines: Sequence[tuple[str, ...]], count: int) -> Iterator[tuple[str, ...]]:
    """So many, spread evenly."""
    count = min(count, len(lines))
    return (lines[index * len(lines) // count] for index in range(count))


def ends(lines: Sequence[tuple[str, ...]]) -> list[Ended]:
    with tempfile.TemporaryDirectory() as parent:
        found, model = [], Path(parent, "model.gguf")
        write_gguf(MemorySource(), model, name="odd")
        for number, line in enumerate(lines):
            folder = Path(parent, str(number))
            folder.mkdir()
            prepare(folder, model)
            found.append(run(line, folder))
        return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1 << 30, help="lines, spread over all of them")
    options = parser.parse_args(argv)
    found = ends(list(sample(command_lines(), options.count)))
    broken = [(one.fault, shown(one.line), one.err[-500:]) for one in found if one.fault is not None]
    statuses = Counter(one.status for one in found)
    slowest = max(found, key=lambda one: one.cpu_s)
    row = {"lines": len(found), "statuses": dict(sorted(statuses.items())), "most_cpu_s": round(slowest.cpu_s, 2)}
    print(json.dumps(row | {"slowest": shown(slowest.line), "broken": broken}, indent=1))
    return 1 if broken else 0


def shown(line: Sequence[str]) -> str:
    return " ".join(word if len(word) < 60 else f"{word[:20]}... ({len(word)})" for word in map(repr, line))


if __name__ == "__main__":
    sys.exit(main())
