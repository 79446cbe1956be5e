"""InputStats: what calibration knows of the input of one linear."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class InputStats:
    """Statistics of X [num_tokens, K], the rows that reached a linear. Linears that share an input share one object.

    absmax       [K] float32, max |X_j|
    sum_squares  [K] float32, sum of X_j^2; over num_tokens it is llama.cpp's importance
    hessian      [K, K] float32, X^T X; None where nothing asked for it
    sample       [S, K] float32, rows of X spread evenly over the calibration text; None where nothing asked for them
    """

    num_tokens: int
    absmax: np.ndarray
    sum_squares: np.ndarray
    hessian: np.ndarray | None = None
    sample: np.ndarray | None = None

    @property
    def importance(self) -> np.ndarray:
        """[K] float32, mean of X_j^2"""
        return self.sum_squares / np.float32(max(self.num_tokens, 1))


@dataclass(frozen=True, slots=True)
class KVStats:
    """Ranges of one decoder layer's keys (after RoPE) and values.

    k_absmax, v_absmax   [G, D] float32: kv heads x channels
    """

    k_absmax: np.ndarray
    v_absmax: np.ndarray
