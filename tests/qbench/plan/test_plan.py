"""Published figures out of the plan, its parts against real objects, and its total against a process."""

import pytest
from support.artifact import write_artifact
from support.memory_source import MemorySource

from qbench.plan import PlanCase, compared, measured, plan
from qbench.runtime import load_model
from qbench.sources import open_source
from quant.errors import InputError
from quant.recipes import get_recipe

BATCHES = (1, pytest.param(16, marks=pytest.mark.exhaustive("seconds of prefill; one sequence has the same parts")))


def test_llama_2_7b_takes_half_a_megabyte_a_token_in_f16():
    result = plan("shape:llama-2-7b", PlanCase(kv_format="kv-f16"))
    assert result.parts.kv_bytes_per_token == 2 * 32 * 4096 * 2 == result.kv_forms_bytes_per_token["mha"]
    assert result.attention == "mha" and result.context == 4096


def test_bloom_176b_takes_four_megabytes_a_token_in_f16():
    result = plan("shape:bloom-176b", PlanCase(kv_format="kv-f16"))
    assert result.parts.kv_bytes_per_token == 2 * 70 * 14336 * 2 == pytest.approx(4e6, rel=0.01)


def test_an_a10_holds_twenty_thousand_tokens_of_a_7b_model():
    result = plan("shape:llama-2-7b", PlanCase(kv_format="kv-f16", prefill=512, memory_bytes=24 * 10**9))
    assert result.fitting.kv_tokens == pytest.approx(20_000, rel=0.01)


def test_deepseek_v2s_latents_as_its_paper_counts_them():
    """A layer: 128 heads' keys of 192 and values of 128 in 2 bytes, or a latent of 512 and a key of 64."""
    result = plan("shape:deepseek-v2", PlanCase(kv_format="kv-bf16"))
    assert result.kv_forms_bytes_per_token["mha"] == 60 * 81_920
    assert result.kv_forms_bytes_per_token["mla"] == 60 * 1_152 == result.parts.kv_bytes_per_token


@pytest.mark.parametrize(
    "name, forms",
    [
        ("ref:llama", {"mha": 4 * 4 * 128 * 2, "gqa": 4 * 2 * 128 * 2, "mqa": 4 * 128 * 2}),
        ("shape:llama-2-70b", {"mha": 80 * 64 * 256 * 2, "gqa": 80 * 8 * 256 * 2, "mqa": 80 * 256 * 2}),
    ],
)
def test_grouped_heads_are_between_all_and_one(name, forms):
    result = plan(name, PlanCase())
    assert result.kv_forms_bytes_per_token == forms and result.attention == "gqa"


def test_a_window_keeps_only_visible_tokens():
    share = plan("shape:mistral-7b", PlanCase(context=32768)).windowed_kv_share
    assert share == 4096 / 32768
    assert plan("shape:mistral-7b", PlanCase(context=4096)).windowed_kv_share == 1
    assert plan("ref:llama", PlanCase()).windowed_kv_share == 1


@pytest.mark.parametrize("recipe", ["q8_0", "q4_k_m", "rtn-w8"])
def test_bytes_of_a_recipe_match_its_artifact(recipe, tmp_path):
    source = MemorySource()
    case = PlanCase(recipe=recipe, context=32)
    path = write_artifact(source, tmp_path / "m", recipe=get_recipe("bf16"))
    predicted = plan(str(path), case)
    made = write_artifact(
        open_source(str(path)), tmp_path / ("q.gguf" if recipe[0] == "q" else "q"), recipe=get_recipe(recipe)
    )
    found = open_source(str(made))
    assert predicted.parts.weights_bytes == sum(info.size_bytes for info in found.tensors.values())
    assert predicted.parts.resident_bytes == load_model(found).weight_bytes


def test_a_model_that_does_not_fit_holds_no_tokens():
    result = plan("shape:llama-2-7b", PlanCase(memory_bytes=10**9))
    assert not result.fitting.fits and result.fitting.kv_tokens == 0
    assert result.fitting.largest_batch == 0 and result.fitting.largest_contexts == []


def test_bad_input():
    with pytest.raises(InputError, match="shape 'lama' is unknown"):
        plan("shape:lama", PlanCase())
    with pytest.raises(InputError, match="a context of 2000 tokens, but ref:llama holds 1024"):
        plan("ref:llama", PlanCase(context=2000))
    with pytest.raises(InputError, match="has no weights"):
        open_source("shape:llama-2-7b").read("model.norm.weight")


@pytest.mark.parametrize("batch", BATCHES)
def test_the_peak_of_a_process_is_predicted_within_a_twentieth(batch):
    predicted = plan("ref:llama", PlanCase(batch=batch))
    result = compared(predicted.parts.total_bytes, measured("ref:llama", predicted.context, batch))
    assert result.ratio == pytest.approx(1, abs=0.05)
    if batch > 1:  # its own part is more than a third
        part = result.peak_rss_bytes - result.runtime_bytes
        assert predicted.parts.total_bytes / part == pytest.approx(1, abs=0.05)


def test_the_scores_of_textbook_attention_grow_with_the_square_of_the_context():
    """4 heads; a score and its weight at once, and two bytes of the mask."""
    parts = {name: plan("ref:llama-8k", PlanCase(context=8192, attention=name)).parts for name in ("textbook", "sdpa")}
    of_scores = parts["textbook"].workspace_bytes - parts["sdpa"].workspace_bytes
    assert of_scores == 8192**2 * (4 * 2 * 4 + 2)
    with pytest.raises(InputError, match="has latent attention"):
        plan("ref:mla-moe", PlanCase(attention="sdpa"))


@pytest.mark.exhaustive("five seconds; its formula and the other peaks are in every run")
def test_the_peak_of_textbook_attention_is_predicted_within_a_tenth():
    predicted = plan("ref:llama-8k", PlanCase(context=2048, attention="textbook"))
    found = measured("ref:llama-8k", 2048, 1, attention="textbook")
    assert compared(predicted.parts.total_bytes, found).ratio == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("batch", BATCHES)
def test_the_peak_of_latents_and_experts_is_predicted_within_a_twentieth(batch):
    predicted = plan("ref:mla-moe", PlanCase(batch=batch))
    result = compared(predicted.parts.total_bytes, measured("ref:mla-moe", predicted.context, batch))
    assert result.ratio == pytest.approx(1, abs=0.05)
