"""`python -m qbench.throughput.llama_cpp_worker`: llama.cpp's own batches of many sequences, in a process that stays.

in    one JSON line {"model", "threads", "slots", "context", "kv", "clock"}, then {"call": "generate", "jobs", "slots"}*
out   as of `speed_worker`
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np

from qbench.speed.speed_worker import serve
from qbench.versus.llama_cpp_worker import LlamaCpp

CHUNK = 512  # tokens of a physical batch, llama.cpp's own default


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


if __name__ == "__main__":
    sys.exit(serve(BatchedLlamaCpp))
