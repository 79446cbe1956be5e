"""`python -m qbench.versus.llama_cpp_worker`: llama.cpp in a process that stays, timed by its parent's commands.

A process of its own, so that neither side's threads wait for work while the other's are measured in the same process.

in    one JSON line {"model", "threads", "context", "kv", "clock"}, then calls as `speed_worker` takes them; with
      "slots" in that line, {"call": "generate", "jobs", "slots"}*: llama.cpp's own batches of many sequences
out   as of `speed_worker`
"""

import ctypes
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np

import qbench
from qbench.measure.host.conditions import CLOCKS
from qbench.measure.host.llama_cpp_package import import_package, limit_waiting
from qbench.speed.speed_worker import serve

# Names in GGUF's readers; llama.cpp's names of types, as its command line takes them.
KV_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}
BATCH = 2048  # tokens per call at most, llama.cpp's own default
CHUNK = 512  # tokens of a physical batch, llama.cpp's own default


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


@dataclass(slots=True)
class Slot:
    """A sequence of the context, and the job that has it. tokens: still to compute"""

    job: int
    tokens: list[int]
    num_new: int
    position: int = 0
    generated: list[int] = field(default_factory=list)


class Generated(TypedDict):
    """The fields of an Outcome, as the line to the parent has them."""

    seconds: float
    tokens: list[list[int]]
    first_s: list[float]
    computed: int


class BatchedLlamaCpp(LlamaCpp):
    """Jobs side by side in slots, as llama-server runs them: each decode call has a token of every sequence that is
    past its prompt, and prompt tokens of others up to CHUNK in all.

    slots, context   sequences that run at once at most, and tokens of each
    """

    def __init__(self, model: str, threads: int, slots: int, context: int, kv: str, clock: str) -> None:
        super().__init__(model, threads, slots * context, kv, clock, sequences=slots)
        self.vocab_size = self.describe()["vocab_size"]
        self.batch = self.lib.llama_batch_init(CHUNK, 0, 1)

    def generate(self, jobs: list[tuple[list[int], int]], slots: int) -> Generated:
        """Greedy, without an end before num_new tokens, in the first `slots` slots.

        jobs   (tokens, num_new) each
        """
        start, computed = self.clock(), 0
        queue = [(index, tokens, num_new) for index, (tokens, num_new) in enumerate(jobs)][::-1]
        running: dict[int, Slot] = {}
        done: dict[int, list[int]] = {}
        first_s = [0.0] * len(jobs)
        while queue or running:
            for sequence in range(slots):
                if sequence not in running and queue:
                    index, tokens, num_new = queue.pop()
                    running[sequence] = Slot(index, list(tokens), num_new)
            places = self._decode(running)
            computed += self.batch.n_tokens
            for sequence, place in places.items():
                slot = running[sequence]
                token = int(self._logits(place).argmax())
                if not slot.generated:
                    first_s[slot.job] = self.clock() - start
                slot.generated.append(token)
                slot.tokens = [token]
                if len(slot.generated) == slot.num_new:
                    done[slot.job] = slot.generated
                    del running[sequence]
                    self.lib.llama_memory_seq_rm(self.memory, sequence, -1, -1)
        seconds = self.clock() - start
        tokens = [done[index] for index in range(len(jobs))]
        return {"seconds": seconds, "tokens": tokens, "first_s": first_s, "computed": computed}

    def _decode(self, running: dict[int, Slot]) -> dict[int, int]:
        """One call; sequence -> the place in the batch of its last token, for sequences whose tokens are all
        computed.
        """
        self.batch.n_tokens = 0
        places = {}
        for sequence, slot in sorted(running.items(), key=lambda item: len(item[1].tokens)):  # decoding ones first
            count = min(len(slot.tokens), CHUNK - self.batch.n_tokens)
            self._add(sequence, slot.position, slot.tokens[:count], wants=count == len(slot.tokens))
            slot.position += count
            slot.tokens = slot.tokens[count:]
            if count and not slot.tokens:
                places[sequence] = self.batch.n_tokens - 1
        if status := self.lib.llama_decode(self.context, self.batch):
            raise RuntimeError(f"llama.cpp's decode ended with status {status}")
        self.lib.llama_synchronize(self.context)
        return places

    def _add(self, sequence: int, position: int, tokens: Sequence[int], wants: bool) -> None:
        batch = self.batch
        for offset, token in enumerate(tokens):
            place = batch.n_tokens
            batch.token[place] = token
            batch.pos[place] = position + offset
            batch.n_seq_id[place] = 1
            batch.seq_id[place][0] = sequence
            batch.logits[place] = wants and offset == len(tokens) - 1
            batch.n_tokens += 1

    def _logits(self, place: int) -> np.ndarray:
        return np.ctypeslib.as_array(self.lib.llama_get_logits_ith(self.context, place), shape=(self.vocab_size,))


def leave_spinning_as_it_comes() -> None:
    """llama.cpp runs as its users run it: without the waiting that this package asks of OpenMP's threads."""
    if os.environ.get("GOMP_SPINCOUNT") == qbench.SPIN_COUNT:
        del os.environ["GOMP_SPINCOUNT"]


def make_side(**given: Any) -> LlamaCpp:
    """given: fields of the first line"""
    return BatchedLlamaCpp(**given) if "slots" in given else LlamaCpp(**given)


if __name__ == "__main__":
    sys.exit(serve(make_side))
