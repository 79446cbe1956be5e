"""CalibrationTokens: the windows of token ids that a model is calibrated on, and their source."""

import hashlib
from dataclasses import dataclass

import numpy as np

from quant.calibrated import TextCalibration

BATCH_TOKENS = 2048  # of one forward pass: enough for full-speed products, little enough to be held next to a layer


@dataclass(frozen=True, slots=True)
class CalibrationTokens:
    """tokens [S, T] int64: S windows of T tokens each

    text            spec of the text that they were cut from
    seed            that drew them
    asked_samples   windows that were asked for
    text_sha256     of a text in a file
    """

    tokens: np.ndarray
    text: str
    seed: int
    asked_samples: int
    text_sha256: str | None = None

    @property
    def num_tokens(self) -> int:
        return self.tokens.size

    @property
    def sha256(self) -> str:
        """Hash of the shape and the ids as little-endian int64."""
        digest = hashlib.sha256(repr(self.tokens.shape).encode())
        digest.update(np.ascontiguousarray(self.tokens, dtype="<i8").data)
        return digest.hexdigest()

    def describe(self, *, on: str, min_expert_tokens: int | None, arithmetic: str) -> TextCalibration:
        """The calibration by these windows, as a manifest keeps it."""
        samples, seq_len = self.tokens.shape
        return TextCalibration(
            text=self.text,
            asked_samples=self.asked_samples,
            seed=self.seed,
            text_sha256=self.text_sha256,
            samples=samples,
            seq_len=seq_len,
            sha256=self.sha256,
            on=on,
            min_expert_tokens=min_expert_tokens,
            arithmetic=arithmetic,
        )

    def batches(self) -> list[slice]:
        """Windows that run together. Fixed by the windows alone, so that sums do not depend on threads."""
        samples, seq_len = self.tokens.shape
        step = max(1, BATCH_TOKENS // seq_len)
        return [slice(start, min(start + step, samples)) for start in range(0, samples, step)]
