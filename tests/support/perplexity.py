"""The same perplexity from any model: every token but a window's first is scored, each window from an empty cache."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.quality.evaluate import prepare, read_text
from qbench.quality.protocols.protocol import Protocol
from qbench.quality.protocols.scoring import Scoring
from qbench.quality.protocols.windows import Window
from qbench.quality.quality import measure_quality
from qbench.runtime import load_model
from qbench.sources import open_source
from quant.source import Source

REFERENCE = "ref:llama"
AGREEMENT = 0.005  # of two implementations that round activations at other places: bfloat16, float16, 8 bits


def reference_windows(num_windows: int) -> np.ndarray:
    """[W, T] int64, the first windows of the reference model's held-out text"""
    return stacked(prepare(open_source(REFERENCE), read_text(None, REFERENCE), num_windows)[0])


def stacked(scoring: Scoring) -> np.ndarray:
    """[W, T] int64 of a plan whose windows are equally long"""
    return np.stack([window.tokens for window in scoring.windows])


def plan_of(windows: np.ndarray, **changes: Any) -> Scoring:
    """Every token but a window's first is scored: [W, T] int64"""
    num, size = windows.shape
    protocol = Protocol(f"windows-{size}", size, size, "all", "text-start", "float32", num, num, "", "")
    cuts = [Window(window, 0, window[1:], block) for block, window in enumerate(windows)]
    return replace(Scoring(protocol, cuts, "window"), **changes)


def our_perplexity(source: Source, windows: np.ndarray) -> float:
    model = load_model(source)
    return measure_quality(model, [plan_of(windows)], model.config.vocab_size)[0].perplexity


@torch.inference_mode()
def their_perplexity(logits_of: Callable[[Tensor], Tensor], windows: np.ndarray) -> float:
    """logits_of: tokens [1, T] -> logits [1, T, V]"""
    losses = []
    for window in torch.from_numpy(windows):
        logits = logits_of(window[None])[0, :-1].double()
        losses.append(torch.nn.functional.cross_entropy(logits, window[1:], reduction="none"))
    return float(torch.cat(losses).mean().exp())


def assert_agree(ours: float, theirs: float) -> None:
    assert abs(ours / theirs - 1) < AGREEMENT, f"perplexity {ours:.5f} here, {theirs:.5f} there"


def assert_same_model(path: Path, logits_of: Callable[[Tensor], Tensor], windows: np.ndarray) -> None:
    """A directory gives the same perplexity here as in whatever else has loaded it."""
    assert_agree(our_perplexity(open_source(str(path)), windows), their_perplexity(logits_of, windows))
