"""Candidates hold the predictions of each alone, and a model's formats are chosen once per recipe."""

import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from qbench.recommendation.candidates import KV_CHOICES, make_candidates
from qbench.recommendation.goal import Goal
from qbench.recommendation.recommend import relaxations
from qbench.recommendation.search import search
from qbench.runtime import predict_memory
from qbench.runtime.layers import linear
from qbench.sources import open_source
from qbench.sources.planned import PlannedSource
from quant.job import make_job
from quant.recipes import Recipe, get_recipe

RECIPES = ("bf16", "q4_k_m", "rtn-w4g128+kv-int8", "llm-int8")


@pytest.mark.parametrize("model", ["ref:llama", "ref:mla-moe"])
def test_each_candidate_matches_its_single_prediction(model):
    source = open_source(model)
    for one in make_candidates(source, Goal(1, 512, batch=3), RECIPES, KV_CHOICES):
        job = make_job(source, get_recipe(one.recipe))
        planned = PlannedSource(job, None if one.kv_format == "f32" else one.kv_format)
        assert one.memory == predict_memory(planned, 512, 3), str(one)


@pytest.fixture
def chosen(monkeypatch):
    """The recipes whose formats are chosen, in order"""
    names, choose = [], Recipe.choose

    def noted(recipe, source):
        names.append(recipe.name)
        return choose(recipe, source)

    monkeypatch.setattr(Recipe, "choose", noted)
    return names


def test_formats_are_chosen_once_per_recipe(chosen):
    """For all KV formats, and for every shorter context and smaller batch of a search for settings that would fit."""
    goal = Goal(15_000_000, 512, batch=4)
    found = make_candidates(open_source("ref:llama"), goal, ("q8_0", "q4_0"), KV_CHOICES)
    limits = {one.limit for one in relaxations(goal, search(found, goal, judge=None))}
    assert limits >= {"memory_bytes", "batch"} and chosen == ["q8_0", "q4_0"]


def test_recipes_that_fallbacks_make_the_same_are_one_candidate():
    """Rows of 128 and 352 weights fit no block of 256."""
    config = small_config(hidden_size=128, intermediate_size=352)
    source = ArraySource(config, random_weights(config))
    found = {
        one.recipe: one.unfit for one in make_candidates(source, Goal(1 << 30, 64), ("q8_0", "q6_k", "q4_0"), ["f32"])
    }
    assert found == {
        "q8_0": None,
        "q6_k": "the same weights as q8_0: rows of this model fit no block of q6_k",
        "q4_0": None,
    }


def test_other_kv_formats_of_recipes_are_separate_candidates():
    found = make_candidates(open_source("ref:llama"), Goal(1, 64), ("q8_0", "q8_0+kv-int8"), ["f32"])
    assert [one.unfit for one in found] == [None, None]


def test_an_implementation_is_chosen_once_a_format_not_once_an_expert(monkeypatch):
    asked = []
    ready = linear._has_packed_linear
    rows = tuple(
        linear.replace(row, ready=lambda name: asked.append(name) or ready(name)) if row is linear.PACKED else row
        for row in linear.LINEARS
    )
    monkeypatch.setattr(linear, "LINEARS", rows)
    predict_memory(open_source("shape:deepseek-v2-lite"), 512)
    assert 0 < len(asked) < 50  # of 5,291 tensors in two formats
