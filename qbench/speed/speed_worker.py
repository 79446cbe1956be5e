"""`python speed_worker.py`: one model in a process that stays, timed by its parent's calls.

Run by its path, with another checkout's packages on the path if that one's speed is asked for: the timer is then the
same for both sides, and only the timed code differs. So it imports the parts of this project that load and run a model,
and little else.

in    one JSON line {"model", "options", "clock"}, then {"call": a method of TimedModel, ...arguments}*
out   {"result": its description}, then {"result": result of the call}*; {"error": "one line"} instead of any,
      after which it ends
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from qbench.measure.child import die_with_parent, send, take_stdout
from qbench.measure.host.conditions import CLOCKS
from qbench.measure.host.memory import current_rss_bytes, peak_rss_bytes
from qbench.measure.metrics import Facts, Memory
from quant.json_data import JsonData, plain

if TYPE_CHECKING:
    from qbench.measure.speed_figures import StepTime
    from qbench.speed.case_facts import CaseFacts


@dataclass(frozen=True, slots=True)
class Described(JsonData):
    """The facts of the model that a worker holds."""

    vocab_size: int
    facts: Facts


class TimedModel:
    """A model and a cache that holds some tokens: passes over others after them, timed again and again."""

    model: Any

    def __init__(self, model: Any, clock: str = "wall") -> None:
        self.model, self.clock = model, CLOCKS[clock]
        # Where a model's forward passes run on by themselves: they follow each other, and the last is waited for.
        self.run = getattr(model, "enqueue", partial(model, last_only=True))
        self.wait = getattr(model, "wait", lambda: None)
        self.pid, self.vocab_size = os.getpid(), model.config.vocab_size
        self.depth = 0
        self.cache: Any = None

    def hold(self, tokens: list[list[int]], capacity: int) -> None:
        """Start again with these in a cache of room for `capacity`.

        tokens   [B, D]; D may be 0
        """
        self.cache = None  # its memory is free before that of the next is taken
        self.depth = len(tokens[0])
        self.cache = self.model.new_cache(batch=len(tokens), capacity=capacity)
        if self.depth:
            self.run(torch.tensor(tokens), self.cache)
            self.wait()
        self.cache.mark()  # `seconds` goes back to this length

    def seconds(self, tokens: list[list[int]], step: int) -> float:
        """Time of forward passes over `step` of these tokens each, after those that are held.

        tokens   [B, T] of the batch that is held
        """
        self.cache.truncate(self.depth)
        passes = torch.tensor(tokens).split(step, dim=1)
        start = self.clock()
        for some in passes:
            self.run(some, self.cache)
        self.wait()
        return self.clock() - start

    def limit_weights(self, num_bytes: int) -> None:
        """Give the weights of a model within a memory limit at most so many bytes."""
        self.model.weights.most_bytes = num_bytes

    def streamed_passes(self, tokens: list[list[int]]) -> "list[StepTime]":
        """Each forward pass over one of these tokens of each sequence, after those that are held.

        tokens   [B, T] of the batch that is held; of a model within a memory limit
        """
        from qbench.measure.speed_figures import StepTime

        self.cache.truncate(self.depth)
        streamer = self.model.weights.streamer
        found = []
        for one in torch.tensor(tokens).split(1, dim=1):
            start, before = self.clock(), streamer.times
            self.run(one, self.cache)
            seconds, after = self.clock() - start, streamer.times
            wait, disk = after.waited_s - before.waited_s, after.busy_s - before.busy_s
            found.append(StepTime(seconds, seconds - wait, wait, disk, after.read_bytes - before.read_bytes))
        return found


class TimedSubject(TimedModel):
    """A model from its spec, in a process of its own."""

    def __init__(self, model: str, options: Mapping[str, Any], clock: str) -> None:
        import qbench.calibration.open_subject
        import qbench.runtime  # noqa: F401 - later memory is the model's, not that of its imports

        self.baseline_rss_bytes = current_rss_bytes()
        self.clock_name = clock
        self.open(model, options)

    def open(self, model: str, options: Mapping[str, Any]) -> "Described":
        """Take this model, in place of one that is held; returns as `describe`."""
        from qbench.calibration.open_subject import open_subject
        from qbench.run.options import RunOptions
        from qbench.runtime import load_model

        self.model = self.cache = None  # their memory is free before that of the next is taken
        self.subject = open_subject(model, RunOptions.from_json(options))
        super().__init__(load_model(self.subject.source, self.subject.options), self.clock_name)
        return self.describe()

    def describe(self) -> "Described":
        return Described(self.vocab_size, self.subject.facts(self.model.impls))

    def facts(self, case: Mapping[str, Any]) -> "CaseFacts":
        """`case_facts` of a case, given by its fields."""
        from qbench.run.work import SpeedWork
        from qbench.speed.case_facts import case_facts

        return case_facts(self.subject, self.model, SpeedWork.from_json(case))

    def memory(self) -> Memory:
        peak = max(peak_rss_bytes(), self.baseline_rss_bytes)
        return Memory(peak_rss_bytes=peak, peak_rss_since="start", baseline_rss_bytes=self.baseline_rss_bytes)


def serve(kind: Callable[..., Any]) -> int:
    """Make the object that the first line asks for, then run the call of each line, until the parent has no more."""
    parent = os.getppid()
    channel = take_stdout()
    die_with_parent(parent)
    try:
        side = kind(**json.loads(sys.stdin.readline()))
        send(channel, {"result": plain(side.describe())})
        for line in sys.stdin:
            call = json.loads(line)
            send(channel, {"result": plain(getattr(side, call.pop("call"))(**call))})
    except (ImportError, ValueError, NotImplementedError, RuntimeError, OSError, MemoryError) as error:
        send(channel, {"error": " ".join(str(error).split()) or type(error).__name__})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(serve(TimedSubject))
