"""Throughput of prefill (`pp`) and decode (`tg`) at a depth, as llama-bench defines them."""

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.harness.quality import Progress
from qbench.harness.speed_case import WARM_UP_DECODE, SpeedCase
from qbench.harness.statistics import spread

SEED = 20240217


def measure_speed(model: Any, vocab_size: int, case: SpeedCase, progress: Progress | None = None) -> dict[str, Any]:
    """Seconds of each repetition, prefill and decode in turn, so that a slow spell of the machine hits both alike.

    pp   `case.pp` random tokens in one pass, logits of the last only
    tg   `case.tg` passes of one random token each, logits each time
    """
    case.check_context(model.config.max_positions)
    tokens = torch.from_numpy(np.random.default_rng(SEED).integers(vocab_size, size=(1, case.longest)))  # [1, T]
    cache = model.new_cache(batch=1, capacity=case.longest)
    if case.depth:
        model(tokens[:, : case.depth], cache, last_only=True)
    prompt = tokens[:, case.depth : case.depth + case.pp]
    words = tokens[:, case.depth : case.depth + case.tg]
    _prefill_seconds(model, cache, prompt, case.depth)
    _decode_seconds(model, cache, tokens[:, -WARM_UP_DECODE:], case.depth)
    seconds: dict[str, list[float]] = {"pp": [], "tg": []}
    for repetition in range(case.repetitions):
        if case.pp:
            seconds["pp"].append(_prefill_seconds(model, cache, prompt, case.depth))
        if case.tg:
            seconds["tg"].append(_decode_seconds(model, cache, words, case.depth))
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


def _prefill_seconds(model: Any, cache: Any, prompt: Tensor, depth: int) -> float:
    cache.truncate(depth)
    if not prompt.shape[1]:
        return 0.0
    start = time.perf_counter()
    model(prompt, cache, last_only=True)
    return time.perf_counter() - start


def _decode_seconds(model: Any, cache: Any, words: Tensor, depth: int) -> float:
    cache.truncate(depth)
    start = time.perf_counter()
    for word in words.split(1, dim=1):
        model(word, cache, last_only=True)
    return time.perf_counter() - start
