"""CalibrationTokens: the windows of token ids that a model is calibrated on, and where they came from."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

BATCH_TOKENS = 2048  # of one forward pass: enough for full-speed products, little enough to be held beside a layer


@dataclass(frozen=True, slots=True)
class CalibrationTokens:
    """tokens [S, T] int64: S windows of T tokens each

    origin   what was asked for: the spec of the text, how many windows, how long, from which seed
    """

    tokens: np.ndarray
    origin: dict[str, Any]

    @property
    def num_tokens(self) -> int:
        return self.tokens.size

    @property
    def sha256(self) -> str:
        """Of the shape and the ids as little-endian int64."""
        digest = hashlib.sha256(repr(self.tokens.shape).encode())
        digest.update(np.ascontiguousarray(self.tokens, dtype="<i8").data)
        return digest.hexdigest()

    def describe(self) -> dict[str, Any]:
        """What a manifest keeps: enough to make the same windows again, and to see that they are the same."""
        samples, length = self.tokens.shape
        return {**self.origin, "samples": samples, "length": length, "sha256": self.sha256}

    def batches(self) -> list[slice]:
        """Windows that run together. Fixed by the windows alone, so that sums do not depend on threads."""
        samples, length = self.tokens.shape
        step = max(1, BATCH_TOKENS // length)
        return [slice(start, min(start + step, samples)) for start in range(0, samples, step)]
