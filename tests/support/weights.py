"""Weights that quantizers meet: the usual, the heavy-tailed and the awkward. All [16, 2048] float32, fixed seed."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors import safe_open

SHAPE = (16, 2048)


def _gauss(rng: np.random.Generator) -> np.ndarray:
    return 0.02 * rng.standard_normal(SHAPE)


def _outliers(rng: np.random.Generator) -> np.ndarray:
    weight = _gauss(rng)
    weight[:, ::97] *= 60
    return weight


def _some_zero_rows(rng: np.random.Generator) -> np.ndarray:
    weight = _gauss(rng)
    weight[::2] = 0
    return weight


_KINDS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "gauss": _gauss,
    "student_t4": lambda rng: 0.02 * rng.standard_t(4, SHAPE),
    "outliers": _outliers,
    "positive": lambda rng: np.abs(_gauss(rng)),
    "shifted": lambda rng: _gauss(rng) - 0.05,
    "zero_rows": _some_zero_rows,
}

KINDS = tuple(_KINDS)


def make_weight(kind: str) -> np.ndarray:
    """[16, 2048] float32"""
    return _KINDS[kind](np.random.default_rng(1234)).astype(np.float32)


def reference_weight() -> np.ndarray:
    """[256, 768] float32: a linear of the reference model, trained weights as they really are"""
    path = Path(__file__).resolve().parents[2] / "qbench/reference/weights/llama/model.safetensors"
    with safe_open(path, framework="pt") as tensors:
        return tensors.get_tensor("model.layers.1.mlp.down_proj.weight").float().numpy()
