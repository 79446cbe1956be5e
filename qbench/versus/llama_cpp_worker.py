"""`python -m qbench.versus.llama_cpp_worker`: llama.cpp in a process that stays, timed by its parent's commands.

A process of its own, so that neither side's threads wait for work while the other's are measured in the same process.

in    one JSON line {"model", "threads", "context", "kv", "clock"}, then calls as `speed_worker` takes them
out   as of `speed_worker`
"""

import ctypes
import os
import sys
from typing import TypedDict

import qbench
from qbench.measure.host.clocks import CLOCKS
from qbench.speed.speed_worker import serve
from qbench.versus.llama_cpp_package import import_package, limit_waiting

# Names in GGUF's readers; llama.cpp's names of types, as its command line takes them.
KV_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}
BATCH = 2048  # tokens per call at most, llama.cpp's own default


class LlamaCppFacts(TypedDict):
    """version, system: of llama-cpp-python, and llama.cpp's build features"""

    version: str
    system: str
    vocab_size: int


class LlamaCpp:
    """A model and a context of llama.cpp.

    context, sequences   tokens that it holds in all, in so many equal parts
    raises               RuntimeError where llama.cpp refuses the model or the context
    """

    def __init__(self, model: str, threads: int, context: int, kv: str, clock: str, sequences: int = 1) -> None:
        leave_spinning_as_it_comes()
        limit_waiting()

        package = import_package()
        self.clock, self.depth = CLOCKS[clock], 0
        self.lib = package.llama_cpp
        self.version = package.__version__
        self._silence = self.lib.llama_log_callback(lambda level, text, data: None)  # held: llama.cpp keeps a pointer
        self.lib.llama_log_set(self._silence, ctypes.c_void_p(0))
        self.lib.llama_backend_init()
        self.model = self.lib.llama_model_load_from_file(model.encode(), self.lib.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {model}")
        params = self.lib.llama_context_default_params()
        params.n_ctx, params.n_batch = context, BATCH
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = KV_TYPES[kv]
        self.context = self.lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError(f"llama.cpp makes no context of {context} tokens with keys and values in {kv}")
        self.memory = self.lib.llama_get_memory(self.context)

    def describe(self) -> LlamaCppFacts:
        return {
            "version": self.version,
            "system": self.lib.llama_print_system_info().decode().strip(" |"),
            "vocab_size": self.lib.llama_vocab_n_tokens(self.lib.llama_model_get_vocab(self.model)),
        }

    def hold(self, tokens: list[list[int]], capacity: int) -> None:
        """Start again with these tokens [1, D]; the context has room for the longest case from the start."""
        self.depth = 0
        self.seconds(tokens, max(1, len(tokens[0])))
        self.depth = len(tokens[0])

    def seconds(self, tokens: list[list[int]], step: int) -> float:
        """Time of passes over `step` of these tokens [1, T] each, after those that are held."""
        (row,) = tokens
        if not self.lib.llama_memory_seq_rm(self.memory, 0, self.depth, -1):
            raise RuntimeError(f"llama.cpp cannot forget the tokens after {self.depth}")
        data = (self.lib.llama_token * len(row))(*row)
        step = min(step, BATCH)
        start = self.clock()
        for first in range(0, len(row), step):
            some = ctypes.cast(ctypes.addressof(data) + 4 * first, ctypes.POINTER(self.lib.llama_token))
            status = self.lib.llama_decode(
                self.context, self.lib.llama_batch_get_one(some, min(step, len(row) - first))
            )
            if status:
                raise RuntimeError(f"llama.cpp's decode ended with status {status}")
        self.lib.llama_synchronize(self.context)
        return self.clock() - start


def leave_spinning_as_it_comes() -> None:
    """llama.cpp runs as its users run it: without the waiting that this package asks of OpenMP's threads."""
    if os.environ.get("GOMP_SPINCOUNT") == qbench.SPIN_COUNT:
        del os.environ["GOMP_SPINCOUNT"]


if __name__ == "__main__":
    sys.exit(serve(LlamaCpp))
