"""`--dry-run`: the arithmetic of the forecast, and with --benchmark-only the forecast against a real run."""

import json
import time
from dataclasses import replace

import numpy as np
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.calibration import small_source

from qbench.calibration import forecast as forecast_module
from qbench.calibration.forecast import (
    OneLayer,
    Probe,
    disk_bytes,
    forecast,
    one_layer_job,
    plain_seconds,
    total_seconds,
)
from qbench.calibration.write import write_quantized
from qbench.cli.main import main
from qbench.cli.output import readable_bytes
from qbench.measure.host.memory import peak_rss_bytes, reset_peak_rss
from qbench.run.work import CalibrationWork
from qbench.sources import rand
from quant.artifacts import make_artifact_job
from quant.job import make_job
from quant.models import ModelConfig, expected_tensors
from quant.recipes import get_recipe
from quant.recipes.policies import Rule, Rules, Uniform
from quant.recipes.recipe import Recipe

RECIPE = Recipe("test", "gguf", "imatrix", Uniform("q4_0"))


def test_the_middle_layer_represents_all():
    source = small_source(num_hidden_layers=5)
    one = OneLayer(source)
    assert ModelConfig.of(one).num_layers == 1
    assert {name: info.shape for name, info in one.tensors.items()} == {
        name: want.shape for name, want in expected_tensors(ModelConfig.of(one)).items()
    }
    name = "self_attn.q_proj.weight"
    got, want = one.read(f"model.layers.0.{name}"), source.read(f"model.layers.2.{name}")
    assert np.array_equal(got.parts["blocks"], want.parts["blocks"])


def test_the_middle_layer_has_experts_even_if_the_first_is_dense():
    config = small_config("deepseek2", num_hidden_layers=3, first_k_dense_replace=1)
    one = OneLayer(ArraySource(config, random_weights(config)))
    assert list(one.tensors) == list(expected_tensors(ModelConfig.of(one)))
    assert any(".experts." in name for name in one.tensors)


def test_the_probe_is_by_the_plan_of_the_whole_model(tmp_path):
    """A rule for the middle layer alone would match nothing in a model of one layer."""
    policy = Rules((Rule("*.layers.2.*", "q8_0"),), Uniform("q4_0"))
    recipe = Recipe("test", "gguf", "imatrix", policy, must_match=("*.layers.2.*",))
    job = one_layer_job(make_job(small_source(num_hidden_layers=5), recipe), tmp_path)
    assert list(job.choices) == list(job.source.tensors)
    assert job.choices["model.layers.0.self_attn.q_proj.weight"].format == "q8_0"
    assert job.choices["lm_head.weight"].format == "q4_0" and job.output.path == tmp_path / "m.gguf"


def test_seconds_grow_with_the_layers():
    assert total_seconds(Probe(layer_s=2.0, rest_s=3.0, peak_rss_bytes=1), 10, hashed_s=0.5) == 23.5


def test_disk_holds_layers_next_to_hidden_states_or_the_artifact():
    source = small_source()
    options, config = CalibrationWork(samples=10, seq_len=100, arithmetic="fp32", on="steps"), ModelConfig.of(source)
    shapes = {name: info.shape for name, info in source.tensors.items()}
    bytes_of = {name: np.prod(s) * 4 if len(s) == 1 else np.prod(s) // 32 * 18 for name, s in shapes.items()}  # q4_0
    layer = sum(size for name, size in bytes_of.items() if ".layers." in name)
    # The input and output of a layer, and in between: attention's sum, its inputs, and the net's 96 features.
    job = make_job(source, RECIPE)
    assert disk_bytes(job, options, config) == layer + 4 * 10 * 100 * (2 * 64 + 64 + 64 + 96)
    rounded = disk_bytes(job, replace(options, arithmetic="bf16"), config)
    assert rounded == layer + 10 * 100 * (4 * 3 * 64 + 2 * (64 + 96))
    whole = disk_bytes(job, replace(options, on="quantized"), config)
    assert whole == layer + 2 * 4 * 10 * 100 * 64
    few = replace(options, samples=1, seq_len=2)
    assert disk_bytes(job, few, config) == layer + sum(bytes_of.values())


def test_a_plan_of_a_calibrated_recipe_ends_in_its_cost(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv = ["quantize", "rand:tiny", "--recipe", "imatrix-q4_k_m", "--samples", "2", "--seq-len", "32", "--dry-run"]
    assert main([*argv, "--json"]) == 0
    cost = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert cost.keys() == {"seconds", "peak_rss_bytes", "disk_bytes", "artifact_bytes"}
    assert all(value > 0 for value in cost.values())
    assert main(argv) == 0 and "by a probe of a layer; the artifact keeps" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_plan_forecasts_its_time_and_the_size_of_the_artifact(tmp_path, monkeypatch, capsys):
    argv = ["quantize", "rand:tiny", "--recipe", "q4_k_m", "-o", str(tmp_path / "m.gguf")]
    monkeypatch.setattr(forecast_module, "measure_layer", lambda *_: Probe(layer_s=20, rest_s=5.0, peak_rss_bytes=1))
    monkeypatch.setattr(forecast_module, "hash_seconds_per_byte", lambda: 0.0)
    assert main([*argv, "--dry-run"]) == 0
    shown = capsys.readouterr().out.splitlines()[-1]
    assert main([*argv, "--dry-run", "--json"]) == 0
    cost = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert main([*argv, "--json"]) == 0
    size = json.loads(capsys.readouterr().out)["size_bytes"]
    seconds = 20 * ModelConfig.of(rand.RandomSource("rand:tiny")).num_layers + 5
    assert cost == {"seconds": seconds, "artifact_bytes": size}
    assert shown == f"takes about {seconds} s by a probe of a layer; the artifact takes {readable_bytes(size)} of disk"


def test_a_plan_of_a_shape_has_no_weights_to_time(capsys):
    assert main(["quantize", "shape:tiny", "--recipe", "q4_k_m", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("the artifact takes ")


def test_a_plan_times_a_recipe_without_calibration():
    job = make_job(small_source(num_hidden_layers=3), get_recipe("q4_k_m"))
    assert plain_seconds(job, threads=1) > 0


def test_forecast_within_a_fifth(benchmark, tmp_path, monkeypatch):
    """A model of eight layers, 512 wide; needs a machine that does nothing else."""
    shape = {**rand.SHAPES["tiny"], "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8}
    monkeypatch.setitem(rand.SHAPES, "eight", shape)
    source, recipe = rand.RandomSource("rand:eight"), get_recipe("gptq-q4_k_m")
    options = CalibrationWork(samples=64, seq_len=256)
    write_quantized(make_artifact_job(source, recipe, tmp_path / "warm.gguf"), replace(options, samples=2))
    job = make_artifact_job(source, recipe, tmp_path / "m.gguf")
    foretold = forecast(job, options, threads=1)
    reset_peak_rss()
    start = time.perf_counter()
    benchmark.pedantic(write_quantized, args=(job, options), rounds=1)
    assert abs(foretold["seconds"] / (time.perf_counter() - start) - 1) <= 0.2
    assert abs(foretold["peak_rss_bytes"] / peak_rss_bytes() - 1) <= 0.2
