"""The byte and operation counts against sums written out for one small model."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.close import assert_close

from qbench.measure.speed_figures import Roofline
from qbench.run.options import RunOptions
from qbench.run.work import SpeedWork
from qbench.runtime import load_model
from qbench.speed.machine_peaks import CurrentPeaks
from qbench.speed.roofline import (
    Shape,
    decode_bytes,
    decode_ops,
    least_work,
    linear_operands,
    operands_on_device,
    prefill_ops,
)
from qbench.speed.rounds import Rounds, Samples
from qbench.speed.shares import ROUND, roofline
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY
from quant.source import TensorInfo

# Two layers of width 8: one linear [16, 8] and a norm each; vocabulary 10; 2 heads of 4, 1 kv head, float32 cache.
TENSORS = {
    "model.embed_tokens.weight": TensorInfo((10, 8), "q8_0", 85),
    "model.layers.0.q.weight": TensorInfo((16, 8), "q8_0", 136),
    "model.layers.0.norm.weight": TensorInfo((8,), "f32", 32),
    "model.layers.1.q.weight": TensorInfo((16, 8), "f32", 512),
    "model.layers.1.norm.weight": TensorInfo((8,), "f32", 32),
}
HEAD = {"lm_head.weight": TensorInfo((10, 8), "f32", 320)}
SHAPE = Shape(num_layers=2, num_heads=2, head_dim=4, value_dim=4, kv_bytes_per_token=2 * 2 * 1 * 4 * 4)
CASE = SpeedWork(pp=3, tg=5, depth=7)
OPERANDS = {"model.layers.0.q": "int8", "model.layers.1.q": "fp32", "lm_head": "bf16"}
OPS = {"fp32": 1e6, "int8": 4e6, "bf16": 2e6}
UNITS = {"fp32": "avx2 fp32", "int8": "amx int8", "bf16": "amx bf16", "int16": "amx bf16"}


def bounds(case: SpeedWork = CASE, bandwidth=1e6, ops=OPS, cache=0, ttft=10e-3, tpot=2e-3) -> Roofline:
    """One round after one of warm-up, both at this bandwidth. ttft, tpot: seconds; None: not measured"""
    phases = {"pp": ttft, "tg": tpot and case.tg * tpot}
    rounds = Rounds({phase: [Samples([9.0, took])] for phase, took in phases.items() if took}, probed=[bandwidth] * 2)
    machine = CurrentPeaks(1, ops, None, 0.0, cache, UNITS)
    return roofline(least_work(TENSORS, SHAPE, OPERANDS, case), case, rounds, 0, machine)


def test_decode_moves_each_weight_once_and_the_cache_so_far():
    tied = decode_bytes(TENSORS, SHAPE, CASE)
    assert tied["linears"] == 136 + 512 + 85, "a tied head reads the whole table"
    assert tied["embedding_row"] == 8.5 and tied["norms_and_biases"] == 64
    assert tied["kv_read"] == np.mean([7, 8, 9, 10, 11]) * 64 and tied["kv_written"] == 64
    assert decode_bytes(TENSORS | HEAD, SHAPE, CASE)["linears"] == 136 + 512 + 320


def test_prefill_counts_a_multiply_and_an_add_for_each_weight_and_key():
    ops = prefill_ops(TENSORS, SHAPE, CASE)
    assert ops["linears"]["model.layers.0.q"] == 2 * 16 * 8 * 3
    assert ops["linears"]["lm_head"] == 2 * 10 * 8, "logits of the last token alone"
    keys_seen = 8 + 9 + 10
    assert ops["attention"] == dict.fromkeys(("q_k", "p_v"), 2 * 2 * 2 * 4 * keys_seen) == {"q_k": 864, "p_v": 864}


def test_values_may_be_narrower_than_keys():
    attention = prefill_ops(TENSORS, replace(SHAPE, value_dim=3), CASE)["attention"]
    assert attention == {"q_k": 864, "p_v": 648}


def test_a_query_sees_its_layers_window_and_no_more():
    shape = replace(SHAPE, windows=(0, 9))
    assert decode_bytes(TENSORS, shape, CASE)["kv_read"] == (np.mean([7, 8, 9, 10, 11]) + np.mean([7, 8, 9, 9, 9])) * 32
    keys_seen = (8 + 9 + 10) + (8 + 9 + 9)  # of the two layers
    assert prefill_ops(TENSORS, shape, CASE)["attention"]["q_k"] == 2 * 2 * 4 * keys_seen


def test_recent_tokens_of_a_residual_are_read_as_float16():
    shape = replace(SHAPE, kv_bytes_per_token=6, residual=KV_FORMATS["kv-kivi-2"], float_bytes_per_token=32)
    parts = decode_bytes(TENSORS, shape, SpeedWork(pp=3, tg=3, depth=190))  # 32 of 190 and 191, 64 of 192 are encoded
    assert parts["kv_read"] == np.mean([32 * 6 + 158 * 32, 32 * 6 + 159 * 32, 64 * 6 + 128 * 32])
    assert parts["kv_written"] == 6 + 32
    near = decode_bytes(TENSORS, replace(shape, windows=(100,)), SpeedWork(pp=3, tg=1, depth=190))
    assert near["kv_read"] == 100 * 32


def test_only_chosen_experts_of_a_token_count():
    experts = {
        f"model.layers.0.mlp.experts.{expert}.up_proj.weight": TensorInfo((4, 8), "q8_0", 34) for expert in range(8)
    }
    shape = replace(SHAPE, expert_share=2 / 8)
    plain, routed = (decode_bytes(tensors, shape, CASE) for tensors in (TENSORS, TENSORS | experts))
    assert routed["linears"] - plain["linears"] == 2 * 34
    ops = prefill_ops(TENSORS | experts, shape, CASE)["linears"]
    assert sum(ops[name.removesuffix(".weight")] for name in experts) == 2 * (2 * 4 * 8) * 3


def test_a_batch_reads_the_weights_once_and_each_cache():
    alone, four = (decode_bytes(TENSORS, SHAPE, replace(CASE, batch=batch)) for batch in (1, 4))
    assert four["linears"] == alone["linears"] and four["norms_and_biases"] == alone["norms_and_biases"]
    assert all(four[part] == 4 * alone[part] for part in ("kv_read", "kv_written", "embedding_row"))
    name = "model.layers.0.mlp.experts.0.up_proj.weight"
    shape = replace(SHAPE, expert_share=1 / 4)
    routed = decode_bytes(TENSORS | {name: TensorInfo((4, 8), "q8_0", 34)}, shape, replace(CASE, batch=2))
    chosen_by_one_of_two = 1 - (3 / 4) ** 2
    assert routed["linears"] - alone["linears"] == 34 * chosen_by_one_of_two


def test_a_step_of_a_large_batch_is_bound_by_its_operations():
    case = replace(CASE, batch=1000)
    ops = decode_ops(TENSORS, SHAPE, case)
    assert ops["linears"] == {
        "model.layers.0.q": 2 * 16 * 8 * 1000,
        "model.layers.1.q": 2 * 16 * 8 * 1000,
        "lm_head": 2 * 10 * 8 * 1000,
    }
    mean_keys = np.mean([8, 9, 10, 11, 12])
    assert ops["attention"]["q_k"] == 2 * 2 * 2 * 4 * mean_keys * 1000
    result = bounds(case, 1e9, dict.fromkeys(OPS, 1e6), ttft=None, tpot=2.0)
    total = sum(ops["linears"].values()) + 2 * ops["attention"]["q_k"]
    assert_close(result.tg, total / 1e6 / 2, rtol=2.0**-50)


def test_shares_are_least_time_over_measured_time():
    result = bounds()
    tg_bytes = 733 + 8.5 + 64 + 9 * 64 + 64
    assert_close(result.tg, tg_bytes / 1e6 / 2e-3, rtol=2.0**-50)
    pp_s = 768 / 4e6 + (768 + 2 * 864) / 1e6 + 160 / 2e6
    assert_close(result.pp, pp_s / 10e-3, rtol=2.0**-50)
    assert result.peak_ops_per_s == OPS and result.bandwidth_of == ROUND
    assert result.units == {name: UNITS[name] for name in OPS}


def test_a_share_uses_the_bandwidth_of_the_same_round():
    """A machine that flips between two bandwidths: the largest of the run would halve the share of the slow rounds."""
    work = least_work(TENSORS, SHAPE, OPERANDS, CASE)
    moved = sum(work["tg_bytes"].values())
    bandwidths = [2e4, 1e4, 2e4, 1e4]
    seconds = [CASE.tg * 2 * moved / bandwidth for bandwidth in bandwidths]
    rounds = Rounds({"tg": [Samples(seconds)]}, probed=bandwidths)
    found = roofline(work, CASE, rounds, 0, CurrentPeaks(1, OPS, None, 0.0))
    assert_close(found.tg, 0.5, rtol=2.0**-50)
    assert found.bandwidths_bytes_per_s == bandwidths and found.pp is None


@pytest.mark.parametrize("policy", ["h2o:budget=64", "recent:budget=64", "quest:budget=64"])
def test_a_policy_reads_at_least_the_tokens_of_its_budget(policy):
    """A share of all tokens, in the pages of an empty cache, was 8 to 18 times the bandwidth."""
    config = small_config("llama", head_dim=32)
    model = load_model(ArraySource(config, random_weights(config)))
    full, short = Shape.of(model), Shape.of(model.following(policy))
    assert short.kv_bytes_per_token == pytest.approx(full.kv_bytes_per_token, rel=0.2)  # quest keeps bounds of blocks
    assert short.kv_read(np.array([40, 1000])).tolist() == [count * short.kv_bytes_per_token for count in (40, 64)]


def test_attention_counts_under_the_operands_of_its_keys_and_values():
    work = least_work(TENSORS, replace(SHAPE, attention="int16"), OPERANDS, CASE)
    assert work["pp_ops"] == {"int16": 2 * 864, "int8": 768, "fp32": 768, "bf16": 160}


def test_a_short_prompt_is_bound_by_reading_the_weights():
    assert_close(bounds(bandwidth=1e3, ttft=1.0).pp, (733 + 64) / 1e3, rtol=2.0**-50)


def test_operands_in_a_cache_are_not_bound_by_memory():
    read = int(sum(bounds().tg_bytes.values()))
    assert bounds(cache=read).tg is not None
    held = bounds(cache=read + 1, bandwidth=1.0)
    assert held.tg is None and held.pp == bounds().pp


def test_a_phase_that_was_not_measured_has_no_share():
    assert bounds(ttft=None).pp is None and bounds(tpot=None).tg is None


@pytest.mark.parametrize(
    "impl, kind",
    [
        ("cuda-w4_gemm[triton]", "bf16"),
        ("cuda-w8a8_gemm[triton]", "int8"),
        ("cuda-llm_int8_gemm[triton]", "int8"),
        ("cuda-fp8_gemm[triton]", "fp8"),
        ("interpreter-fp8_gemm[triton]", "fp32"),
    ],
)
def test_operands_on_a_device_follow_its_function(impl, kind):
    assert operands_on_device(impl) == kind


@pytest.mark.parametrize(
    "kv, compute, operands",
    [
        (None, "fast", "fp32"),
        ("kv-f16", "fast", "bf16"),
        ("kv-fp8", "fast", "bf16"),
        ("kv-int8", "fast", "int16"),
        ("kv-int8", "float32", "fp32"),
    ],
)
def test_operands_of_attention_follow_its_cache_under_any_kernel(kv, compute, operands):
    config = small_config("llama", head_dim=32)
    config |= {} if kv is None else {CONFIG_KEY: KVScheme(KV_FORMATS[kv]).config_entry()}
    model = load_model(ArraySource(config, random_weights(config)), RunOptions(compute=compute))
    assert Shape.of(model).attention == operands


def test_operands_of_linears_follow_their_formats_under_any_kernel():
    model = SimpleNamespace(impl="auto", impls=dict.fromkeys(("model.layers.0.q", "model.layers.1.q"), "reference"))
    operands = linear_operands(TENSORS, model)
    assert operands | {"lm_head": "bf16"} == OPERANDS | {"model.embed_tokens": "int8"}
    assert operands["lm_head"] == "int8", "a tied head has the format of the embedding"
    assert linear_operands(TENSORS | HEAD, model)["lm_head"] == "fp32"
    model.impl = "reference"
    assert set(linear_operands(TENSORS, model).values()) == {"fp32"}
