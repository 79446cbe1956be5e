"""Errors against outputs that are computed."""

import numpy as np
import pytest
from support.memory_source import MemorySource

from qbench.search.errors import measure_errors, sample_embedding, sample_rows
from quant.formats import dequantize, get_format
from quant.models import ModelConfig
from quant.stats import InputStats

RNG = np.random.default_rng(3)
CONFIG = ModelConfig.of(MemorySource())
NAME = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture
def x():
    """[T, K] float32, features that depend on each other"""
    return (RNG.normal(size=(600, 128)) @ RNG.normal(size=(128, 128)) / 8).astype(np.float32)


def stats_of(x):
    return InputStats(len(x), np.abs(x).max(0), np.square(x).sum(0), x.T @ x)


def test_error_is_that_of_the_outputs(x):
    weight = RNG.normal(size=(64, 128)).astype(np.float32)
    stored = get_format("f32").quantize_ref(weight)
    sample = sample_rows({NAME: stored}, ["q4_0", "q8_0", "iq4_nl"])
    errors = measure_errors({"site": sample}, {NAME: stats_of(x)}, CONFIG)["site"]
    assert set(errors) == {(fmt, method) for fmt in ("q4_0", "q8_0") for method in ("rtn", "imatrix", "gptq")} | {
        ("iq4_nl", "rtn"),
        ("iq4_nl", "imatrix"),
    }
    rounded = dequantize(get_format("q4_0").quantize(weight))
    by_outputs = np.square(x @ (weight - rounded).T).sum() / np.square(x @ weight.T).sum()
    # Sums of K * T products in float32, each off by 2**-24 of its terms, which partly cancel in H.
    assert errors["q4_0", "rtn"] == pytest.approx(by_outputs, rel=2**-24 * 128 * 600)
    assert errors["q4_0", "gptq"] < errors["q4_0", "rtn"] and errors["q8_0", "rtn"] < errors["q4_0", "rtn"]


def test_an_embedding_counts_rows_as_often_as_they_are_read():
    table = get_format("f32").quantize_ref(RNG.normal(size=(320, 128)).astype(np.float32))
    tokens = np.array([5] * 900 + [7] * 100)
    errors = measure_errors({"site": sample_embedding(table, tokens, ["q4_0"])}, {}, CONFIG)["site"]
    rows = dequantize(table)[[5, 7]]
    lost = np.square(rows - dequantize(get_format("q4_0").quantize(rows))).sum(1)
    expected = lost @ [900, 100] / (np.square(rows).sum(1) @ [900, 100])
    assert errors == {("q4_0", "rtn"): pytest.approx(expected, rel=2**-20)}


def test_an_expert_that_no_token_reached_is_rounded_plainly():
    stored = get_format("f32").quantize_ref(RNG.normal(size=(64, 128)).astype(np.float32))
    unseen = InputStats(0, None, np.zeros(128, np.float32))
    errors = measure_errors({"site": sample_rows({NAME: stored}, ["q4_0"])}, {NAME: unseen}, CONFIG)["site"]
    assert set(errors) == {("q4_0", "rtn")} and 0 < errors["q4_0", "rtn"] < 0.1


def test_plain_rounding_is_left_out_if_importance_counts(x):
    stored = get_format("f32").quantize_ref(RNG.normal(size=(64, 128)).astype(np.float32))
    samples = {"site": sample_rows({NAME: stored}, ["q4_0", "f16", "w4g32"])}
    errors, all_errors = (
        measure_errors(samples, {NAME: stats_of(x)}, CONFIG, plain)["site"] for plain in (False, True)
    )
    others = {("q4_0", "imatrix"), ("q4_0", "gptq"), ("f16", "rtn"), ("w4g32", "rtn"), ("w4g32", "gptq")}
    assert set(errors) == others and set(all_errors) == others | {("q4_0", "rtn")}
    assert all(all_errors[key] == error for key, error in errors.items())
    alone = measure_errors({"site": sample_rows({NAME: stored}, ["q4_0"])}, {NAME: stats_of(x)}, CONFIG)["site"]
    assert alone["q4_0", "gptq"] == errors["q4_0", "gptq"]  # formats in one call do not meet each other
