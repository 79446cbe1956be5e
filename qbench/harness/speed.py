"""Throughput of prefill (`pp`) and decode (`tg`) at a depth, as llama-bench defines them."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.harness.clocks import CLOCKS
from qbench.harness.quality import Progress
from qbench.harness.speed_case import WARM_UP_DECODE, SpeedCase
from qbench.statistics import spread

SEED = 20240217


class SpeedRun:
    """A model with the tokens of a case and a cache that holds `depth` of them: each phase can be timed again.

    pp   `case.pp` random tokens in one pass, logits of the last only
    tg   `case.tg` passes of one random token each, logits each time
    """

    def __init__(self, model: Any, vocab_size: int, case: SpeedCase, clock: str = "wall") -> None:
        case.check_context(model.config.max_positions)
        self.model, self.case, self.clock = model, case, CLOCKS[clock]
        self.tokens = random_tokens(vocab_size, case)  # [1, T]
        self.cache = model.new_cache(batch=1, capacity=case.longest)
        if case.depth:
            model(self.tokens[:, : case.depth], self.cache, last_only=True)

    @property
    def prompt(self) -> Tensor:
        return self.tokens[:, self.case.depth : self.case.depth + self.case.pp]

    @property
    def words(self) -> Tensor:
        return self.tokens[:, self.case.depth : self.case.depth + self.case.tg]

    def warm_up(self) -> None:
        self.seconds(self.prompt, max(1, self.case.pp))
        self.seconds(self.tokens[:, -WARM_UP_DECODE:], 1)

    def prefill_seconds(self) -> float:
        return self.seconds(self.prompt, self.case.pp)

    def decode_seconds(self) -> float:
        return self.seconds(self.words, 1)

    def seconds(self, tokens: Tensor, step: int) -> float:
        """Time of passes over `step` of these tokens each, after the first `depth`."""
        self.cache.truncate(self.case.depth)
        start = self.clock()
        for some in tokens.split(step, dim=1) if tokens.shape[1] else ():
            self.model(some, self.cache, last_only=True)
        return self.clock() - start


def random_tokens(vocab_size: int, case: SpeedCase) -> Tensor:
    return torch.from_numpy(np.random.default_rng(SEED).integers(vocab_size, size=(1, case.longest)))


def measure_speed(model: Any, vocab_size: int, case: SpeedCase, progress: Progress | None = None) -> dict[str, Any]:
    """Seconds of each repetition, prefill and decode in turn, so that a slow spell of the machine hits both alike."""
    run = SpeedRun(model, vocab_size, case)
    run.warm_up()
    seconds: dict[str, list[float]] = {"pp": [], "tg": []}
    for repetition in range(case.repetitions):
        if case.pp:
            seconds["pp"].append(run.prefill_seconds())
        if case.tg:
            seconds["tg"].append(run.decode_seconds())
        if progress:
            progress(repetition + 1, case.repetitions, "repetitions")
    return speed_statistics(case, seconds["pp"], seconds["tg"])


def speed_statistics(case: SpeedCase, pp_seconds: list[float], tg_seconds: list[float]) -> dict[str, Any]:
    """Medians, spread beside them, raw samples kept; None for what was not measured."""
    pp_tok_s = [case.pp / seconds for seconds in pp_seconds]
    tg_tok_s = [case.tg / seconds for seconds in tg_seconds]
    return {
        "pp_tok_s": spread(pp_tok_s)["median"] if pp_tok_s else None,
        "tg_tok_s": spread(tg_tok_s)["median"] if tg_tok_s else None,
        "ttft_ms": 1e3 * float(np.median(pp_seconds)) if pp_seconds else None,
        "tpot_ms": 1e3 * float(np.median(tg_seconds)) / case.tg if tg_seconds else None,
        "spread": {
            "pp_tok_s": spread(pp_tok_s) if pp_tok_s else None,
            "tg_tok_s": spread(tg_tok_s) if tg_tok_s else None,
        },
        "samples": {"pp_tok_s": pp_tok_s, "tg_tok_s": tg_tok_s},
    }
