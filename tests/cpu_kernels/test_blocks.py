"""Scores of blocks and the choice of the best ones, against their definitions."""

import numpy as np
import pytest

from cpu_kernels.blocks import best_blocks, best_blocks_ref, score_blocks, score_blocks_ref

OP = "block_scores"
SHAPES = [(1, 1, 1, 16), (2, 3, 17, 48), (1, 8, 63, 128), (3, 1, 131, 64), (1, 2, 1500, 16)]  # Q, G, n, C
SPARE = 5


def inputs(queries: int, heads: int, num_rows: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows with NaN behind the last one, and vectors."""
    rng = np.random.default_rng(num_rows)
    rows = rng.standard_normal((heads, num_rows + SPARE, size)).astype(np.float16)
    rows[:, num_rows:] = np.nan
    return rows, rng.standard_normal((queries, heads, size)).astype(np.float32)


def scored(rows: np.ndarray, vectors: np.ndarray, num_rows: int, isa: str | None = None) -> np.ndarray:
    scores = np.full((*vectors.shape[:2], num_rows), np.nan, np.float32)
    ran = score_blocks(rows.view(np.uint16), num_rows, vectors, scores, isa=isa)
    assert isa is None or ran == isa
    return scores


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_scores_are_products_of_rows_and_vectors(isa, shape):
    rows, vectors = inputs(*shape)
    num_rows, size = shape[2:]
    kept = rows[:, :num_rows]
    bound = 2.0**-24 * (size + 1) * score_blocks_ref(np.abs(kept), np.abs(vectors))
    got = scored(rows, vectors, num_rows, isa)
    assert (np.abs(got - score_blocks_ref(kept, vectors)) <= bound).all()
    np.testing.assert_array_equal(got, scored(rows, vectors, num_rows, "scalar"))


def test_equal_rows_get_equal_scores(isa):
    rows, vectors = inputs(2, 2, 101, 80)
    rows[:] = rows[:, :1]
    scores = scored(rows, vectors, 101, isa)
    assert (scores == scores[..., :1]).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_best_are_the_first_of_a_stable_order(shape):
    rng = np.random.default_rng(9)
    scores = rng.integers(-3, 4, shape[:3]).astype(np.float32)  # many ties
    scores[rng.random(shape[:3]) < 0.1] = rng.choice([np.nan, np.inf, -np.inf])
    limits = rng.integers(0, shape[2] + 1, shape[0])
    counts = rng.integers(0, limits + 1)
    best = np.full((*shape[:2], counts.max(initial=0)), 99)
    best_blocks(scores, limits, counts, best)
    np.testing.assert_array_equal(best, best_blocks_ref(scores, limits, counts))


def test_wrong_arguments_are_refused():
    rows, vectors = inputs(2, 3, 17, 48)
    bits, scores = rows.view(np.uint16), np.empty((2, 3, 17), np.float32)
    with pytest.raises(TypeError, match="rows: got float16"):
        score_blocks(rows, 17, vectors, scores)
    with pytest.raises(ValueError, match="expected columns in multiples of 16"):
        score_blocks(np.ascontiguousarray(bits[..., :40]), 17, vectors[..., :40].copy(), scores)
    with pytest.raises(ValueError, match="num_rows: got 23, expected 0 to 22"):
        score_blocks(bits, 23, vectors, scores)
    with pytest.raises(ValueError, match="vectors: got"):
        score_blocks(bits, 17, vectors[:, :2].copy(), scores)
    with pytest.raises(ValueError, match="scores: got"):
        score_blocks(bits, 16, vectors, scores)
    two, best = np.array([2, 2]), np.empty((2, 3, 2), np.int64)
    for limits, counts in ((two, two + 1), (two + 16, two), (two, two - 3), (two[:1], two[:1])):
        with pytest.raises(ValueError, match="limits, counts: got"):
            best_blocks(scores, limits, counts, best)
    with pytest.raises(ValueError, match="best: got"):
        best_blocks(scores, two, two, best[..., :1].copy())


def test_an_instruction_set_that_is_not_here_is_refused():
    rows, vectors = inputs(1, 1, 1, 16)
    with pytest.raises(RuntimeError, match="block_scores"):
        scored(rows, vectors, 1, "avx512_vnni")
