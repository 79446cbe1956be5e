"""The parent's side of llama.cpp: a process that loads the file once and times the requested calls."""

import sys
from collections.abc import Sequence

from qbench.measure.host.llama_cpp_package import package_folder
from qbench.speed.timed_process import TimedProcess

WORKER = (sys.executable, "-m", "qbench.versus.llama_cpp_worker")


class LlamaCppProcess(TimedProcess):
    """llama.cpp in a worker.

    version, system   of llama-cpp-python, and llama.cpp's own list of features of its build
    raises            InputError if the package is missing, and with llama.cpp's reason if it refuses or dies
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
        if command is None:
            package_folder()
        settings = {"model": model, "threads": threads, "context": context, "kv": kv, "clock": clock}
        super().__init__("llama.cpp", command or WORKER, settings)
        self.version, self.system = self.about["version"], self.about["system"]
