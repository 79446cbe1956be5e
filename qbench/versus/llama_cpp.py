"""The parent's side of llama.cpp: a process that loads the file once and times what it is told to."""

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from quant.errors import InputError

WORKER = (sys.executable, "-m", "qbench.versus.llama_cpp_worker")


class LlamaCppProcess:
    """A running worker; as a context manager it ends with the block.

    version, system   of llama-cpp-python, and what llama.cpp says it was built with
    raises            InputError where the package is missing, and with llama.cpp's reason where it refuses or dies
    """

    def __init__(
        self,
        model: str,
        threads: int,
        context: int,
        kv: str,
        clock: str = "wall",
        command: Sequence[str] | None = None,
    ) -> None:
        if command is None and importlib.util.find_spec("llama_cpp") is None:
            raise InputError("llama-cpp-python is not installed, so there is nothing to compare with; pip install it")
        self._log = tempfile.TemporaryFile()
        self._worker = subprocess.Popen(
            command or WORKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )
        about = self._ask({"model": model, "threads": threads, "context": context, "kv": kv, "clock": clock})
        self.version, self.system = about["version"], about["system"]

    def __enter__(self) -> "LlamaCppProcess":
        return self

    def __exit__(self, *_) -> None:
        self._worker.kill()
        self._worker.wait()
        with suppress(BrokenPipeError):  # of a worker that died with a command unread
            self._worker.stdin.close()
        self._worker.stdout.close()
        self._log.close()

    def seconds(self, depth: int, tokens: list[int], step: int) -> float:
        """Time of passes over `step` of these tokens each, after the first `depth` that are held."""
        return self._ask({"depth": depth, "tokens": tokens, "step": step})["seconds"]

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        try:
            self._worker.stdin.write(json.dumps(command).encode() + b"\n")
            self._worker.stdin.flush()
            line = self._worker.stdout.readline()
        except BrokenPipeError:
            line = b""
        answer = json.loads(line) if line.endswith(b"\n") else {"error": self._last_words()}
        if "error" in answer:
            self.__exit__()
            raise InputError(answer["error"])
        return answer

    def _last_words(self) -> str:
        status = self._worker.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f"llama.cpp's process ended with status {status}" + (f": {lines[-1]}" if lines else "")
