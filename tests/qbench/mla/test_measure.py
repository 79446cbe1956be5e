"""The rows of every mode on a small model, and where modes cross."""

import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.close import assert_close

from qbench.mla.layer import Layer
from qbench.mla.measure import Grid, ModePoint, measure_modes
from qbench.mla.run import crossing, measured_crossovers, picked_crossover
from qbench.runtime.attention.mla_modes import MODES, choose_mode
from quant.errors import InputError
from quant.models import ModelConfig


def source_of(architecture: str = "deepseek2", kv: str | None = None, **sizes) -> ArraySource:
    config = small_config(architecture, **sizes)
    entry = {} if kv is None else {"kv_cache": {"format": kv}}
    return ArraySource(config | entry, random_weights(config))


@pytest.mark.parametrize("kv", [None, "kv-f16"])
def test_a_row_for_each_plan_of_each_case(monkeypatch, kv):
    monkeypatch.setattr("qbench.mla.measure.TURN_S", 0)
    source = source_of(kv=kv, kv_lora_rank=64, qk_rope_head_dim=16)
    rows = list(measure_modes(source, Grid((0, 40), (1, 2), (1, 100), rounds=2)))
    assert [row.mode for row in rows] == list(MODES) * 8
    bytes_each = {row.mode: row.kv_bytes_per_token for row in rows}
    item = 4 if kv is None else 2
    assert bytes_each["decompressed"] == item * 4 * (16 + 16 + 24)
    assert bytes_each["compressed"] == bytes_each["elided"] == item * (64 + 16)
    assert all(sum(row.picked for row in rows[i : i + len(MODES)]) == 1 for i in range(0, len(rows), len(MODES)))
    assert all(row.picked == (row.mode == "elided") for row in rows if row.tokens == 1)
    assert all(len(row.samples_ms) == 2 and row.ms > 0 for row in rows)
    assert all(row.peak_bytes >= row.batch * row.context * row.kv_bytes_per_token for row in rows)


def test_plans_agree_over_the_same_tokens():
    """Random rows and random heads differ; so a past is made of real ones, by a pass of each mode."""
    layer = Layer(source_of(kv_lora_rank=64, qk_rope_head_dim=16))
    outs = []
    for mode in MODES:
        cache = layer.cache(mode, 2, 0, 12)
        layer.run(layer.inputs(2, 9), cache)
        cache.advance(9)
        outs.append(layer.run(layer.inputs(2, 3), cache))
    for out in outs[1:]:
        assert_close(out, outs[0], atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_another_device_runs_the_same_in_torch(mode):
    source = source_of(kv_lora_rank=64, qk_rope_head_dim=16, q_lora_rank=24)
    outs = []
    for device in ("cpu", "cpu:0"):  # the second is a device like any other of torch
        layer = Layer(source, device)
        assert layer.in_kernels == (device == "cpu")
        outs.append(layer.run(layer.inputs(2, 3), layer.cache(mode, 2, 9, 3)))
    assert_close(outs[1], outs[0], atol=1e-5)


def test_a_format_without_latents_leaves_one_plan(monkeypatch):
    monkeypatch.setattr("qbench.mla.measure.TURN_S", 0)
    rows = list(measure_modes(source_of(kv="kv-int8", qk_nope_head_dim=24), Grid((8,), (1,), (1,), rounds=1)))
    assert [(row.mode, row.picked) for row in rows] == [("decompressed", True)]


def test_only_the_plans_that_are_asked_for(monkeypatch):
    monkeypatch.setattr("qbench.mla.measure.TURN_S", 0)
    rows = measure_modes(source_of(), Grid((8,), (1,), (1,), rounds=1, modes=("compressed", "elided")))
    assert [row.mode for row in rows] == ["compressed", "elided"]
    with pytest.raises(InputError, match="MLA mode 'fast' is unknown"):
        next(measure_modes(source_of(), Grid((8,), (1,), modes=("fast",))))
    with pytest.raises(InputError, match="'elided' keeps latents, which kv-int8 does not hold"):
        next(measure_modes(source_of(kv="kv-int8", qk_nope_head_dim=24), Grid((8,), (1,), modes=("elided",))))


def test_crossing_is_interpolated_between_logarithms():
    assert crossing({1: 0.5, 100: 2.0}) == pytest.approx(10)
    assert crossing({1: 0.5, 4: 1.0, 16: 4.0}) == 4
    assert crossing({1: 0.5, 100: 0.9}) is None
    assert crossing({1: 2.0, 100: 3.0}) is None
    assert crossing({}) is None


def test_crossovers_of_rows():
    config = ModelConfig.from_hf(small_config("deepseek2", kv_lora_rank=512))
    times = {1: (1.0, 2.0), 100: (4.0, 2.0)}
    rows = [
        ModePoint("m", 8, 2, tokens, mode, ms)
        for tokens, both in times.items()
        for mode, ms in zip(("elided", "compressed"), both, strict=True)
    ]
    (found,) = measured_crossovers(rows, config)
    assert (found.context, found.batch) == (8, 2)
    assert found.tokens == pytest.approx(10)
    assert found.picked == picked_crossover(config, 8)


def test_the_runtimes_crossing_is_where_its_choice_changes():
    heads = {"num_attention_heads": 16, "num_key_value_heads": 16}
    config = ModelConfig.from_hf(small_config("deepseek2", kv_lora_rank=512, max_position_embeddings=4096, **heads))
    first = picked_crossover(config, 512)
    modes = [choose_mode(config.mla, config.num_heads, 512, first - below).name for below in (1, 0)]
    assert modes == ["elided", "compressed"]
    few = ModelConfig.from_hf(small_config("deepseek2", kv_lora_rank=64))
    assert picked_crossover(few, 0) is None


def test_bad_input():
    with pytest.raises(InputError, match="LlamaForCausalLM has no latent attention"):
        Layer(source_of("llama"))
    with pytest.raises(InputError, match="300 tokens, but the model's context holds 256"):
        list(measure_modes(source_of(), Grid((200,), (1,), (100,))))
    with pytest.raises(InputError, match="device 'abacus'"):
        Layer(source_of(), "abacus")
