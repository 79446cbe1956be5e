"""One pass over a text's windows: perplexity of a model, and its divergence from a reference."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from qbench.harness.blocks import block_sums
from qbench.harness.kld import divergence, kld_statistics
from qbench.harness.perplexity import perplexity_statistics, token_nll
from quant.errors import InputError

Model = Callable[[Tensor], Tensor]  # tokens [B, T] int64 -> logits [B, T, V] float32
Progress = Callable[[int, int, str], None]  # (done, total, what is being done)

BATCH_LOGITS_BYTES = 128 << 20  # logits of a batch: large enough to feed two cores, small beside any model
MAX_BATCH = 8


class ReferenceLogits(Protocol):
    """What a model is compared with: the same windows through the unquantized model."""

    vocab_size: int

    def batch(self, start: int, windows: Tensor) -> Tensor:
        """Logits [B, T, V] float32 of windows[start : start + B]."""
        ...


class LiveLogits:
    """Runs the reference beside the model, window by window: no file, twice the time."""

    def __init__(self, model: Model, vocab_size: int) -> None:
        self.model = model
        self.vocab_size = vocab_size

    def batch(self, start: int, windows: Tensor) -> Tensor:
        return self.model(windows)


def batch_size(window: int, vocab_size: int) -> int:
    """Windows a forward pass takes."""
    return max(1, min(MAX_BATCH, BATCH_LOGITS_BYTES // (4 * window * vocab_size)))


@torch.inference_mode()
def measure_quality(
    model: Model,
    windows: np.ndarray,
    vocab_size: int,
    *,
    reference: ReferenceLogits | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Perplexity statistics, and with a reference also KLD statistics.

    windows   [W, T] int64; every token but a window's first is scored
    raises    InputError if the reference has another vocabulary
    """
    if reference is not None and reference.vocab_size != vocab_size:
        raise InputError(
            f"the model has {vocab_size} tokens and its reference {reference.vocab_size}; "
            "give the unquantized model that it was made from"
        )
    step = batch_size(windows.shape[1], vocab_size)
    nll: list[np.ndarray] = []
    compared: list[tuple[np.ndarray, ...]] = []
    for start in range(0, len(windows), step):
        tokens = torch.from_numpy(windows[start : start + step])  # [B, T]
        targets = tokens[:, 1:].reshape(-1)
        logits = _predictions(model(tokens))
        nll.append(token_nll(logits, targets).reshape(len(tokens), -1))
        if reference is not None:
            result = divergence(logits, _predictions(reference.batch(start, tokens)), targets)
            compared.append((result.kld, result.same_top, result.delta_p))
        if progress:
            progress(min(start + step, len(windows)), len(windows), "windows")
    columns = {"nll": np.concatenate(nll)}  # name -> [W, T - 1]
    statistics = perplexity_statistics(columns["nll"])
    if reference is not None:
        kld, same_top, delta_p = (
            np.concatenate(column).reshape(len(windows), -1) for column in zip(*compared, strict=True)
        )
        columns |= {"kld": kld, "same_top": same_top}
        statistics |= kld_statistics(kld, same_top, delta_p)
    sizes = np.full(len(windows), windows.shape[1] - 1)
    blocks = block_sums("window", sizes, {name: values.reshape(-1) for name, values in columns.items()})
    return statistics | {"blocks": blocks}


def _predictions(logits: Tensor) -> Tensor:
    """logits [B, T, V] -> [B * (T - 1), V]: the last position predicts a token outside the window."""
    return logits[:, :-1].reshape(-1, logits.shape[-1])
