"""The parent's side of a speed worker: a process that loads one model and times the requested calls."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from qbench.run.options import RunOptions
from quant.errors import InputError
from quant.present import present

WORKER_FILE = str(Path(__file__).with_name("speed_worker.py"))
# -P: the worker's own folder is no place to import from
WORKER = (sys.executable, "-P", WORKER_FILE)


class TimedProcess:
    """A running worker; as a context manager it ends with the block.

    about     the worker's description of itself
    raises    InputError with the worker's own reason if it refuses, or with its last words if it dies
    """

    def __init__(
        self, name: str, command: Sequence[str], settings: Mapping[str, Any], env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._log = tempfile.TemporaryFile()
        self._worker = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=None if env is None else {**os.environ, **env},
        )
        self.pid = self._worker.pid
        self._questions, self._answers = present(self._worker.stdin), present(self._worker.stdout)
        self.about = self._ask(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self._worker.kill()
        self._worker.wait()
        with suppress(BrokenPipeError):  # of a worker that died with a command unread
            self._questions.close()
        self._answers.close()
        self._log.close()

    @property
    def vocab_size(self) -> int:
        return self.about["vocab_size"]

    def hold(self, tokens: list[list[int]], capacity: int) -> None:
        """As TimedModel.hold."""
        self.call("hold", {"tokens": tokens, "capacity": capacity})

    def seconds(self, tokens: list[list[int]], step: int) -> float:
        """As TimedModel.seconds."""
        return self.call("seconds", {"tokens": tokens, "step": step})

    def open(self, model: str, options: RunOptions) -> None:
        """As TimedSubject.open."""
        self.about = self.call("open", {"model": model, "options": options.to_json()})

    def call(self, method: str, arguments: Mapping[str, Any]) -> Any:
        """The result of the worker's method of this name."""
        return self._ask({"call": method, **arguments})

    def _ask(self, question: Mapping[str, Any]) -> Any:
        try:
            self._questions.write(json.dumps(question).encode() + b"\n")
            self._questions.flush()
            line = self._answers.readline()
        except BrokenPipeError:
            line = b""
        answer = json.loads(line) if line.endswith(b"\n") else {"error": self._last_words()}
        if "error" in answer:
            self.__exit__()
            raise InputError(answer["error"])
        return answer["result"]

    def _last_words(self) -> str:
        status = self._worker.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f"{self.name}'s process ended with status {status}" + (f": {lines[-1]}" if lines else "")


def speed_process(
    model: str,
    options: RunOptions,
    *,
    clock: str = "wall",
    command: Sequence[str] = WORKER,
    env: Mapping[str, str] | None = None,
) -> TimedProcess:
    """This project's own runtime in a process.

    command  by default this interpreter and checkout; `of_checkout` makes those of another
    env      added to this process's own environment, such as {"QBENCH_ISA": "avx2"}
    """
    settings = {"model": model, "options": options.to_json(), "clock": clock}
    return TimedProcess(model, command, settings, env)


def of_checkout(folder: str | Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """(command, env) that run the code of another checkout, built in place, with this interpreter and its packages.

    -S: an editable install would put its own checkout before all that PYTHONPATH names.
    """
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    path = os.pathsep.join([str(Path(folder).resolve()), *packages])
    return (sys.executable, "-S", "-P", WORKER_FILE), {"PYTHONPATH": path}
