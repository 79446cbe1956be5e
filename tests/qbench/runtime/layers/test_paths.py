"""Which code runs the layers: chosen by architecture, weights and cache, or forced by name."""

from collections import Counter
from typing import Any

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.cache_specs import spec_of
from support.close import assert_close

from qbench.run.options import RunOptions
from qbench.runtime import Model, load_model
from qbench.runtime.layers.paths import PATH_NAMES, PATHS, planned_path
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.models import ModelConfig

FUSED = ("run_layers", "run_mla_layers", "attention_step", "feed_forward")


def count_fused_calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Name -> number of calls from now on, by models that are loaded from now on; PackedExperts by its class."""
    kernels = pytest.importorskip("cpu_kernels")
    calls: Counter[str] = Counter()

    def counted(name: str, function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return function(*args, **options)

        return call

    for name in FUSED:
        monkeypatch.setattr(kernels, name, counted(name, getattr(kernels, name)))
    experts = kernels.PackedExperts
    monkeypatch.setattr(experts, "feed_forward", counted("PackedExperts", experts.feed_forward))
    return calls


pytestmark = pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")

TWO_WINDOWS = {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1}
MODELS = {
    "llama": ("llama", {"head_dim": 32}),
    "llama, heads of no store": ("llama", {"head_dim": 24}),
    "llama, relu": ("llama", {"head_dim": 32, "hidden_act": "relu"}),
    "mistral": ("mistral", {"head_dim": 32}),
    "qwen2, a window in one layer": ("qwen2", {"head_dim": 32, **TWO_WINDOWS}),
    "qwen3moe": ("qwen3moe", {"head_dim": 32}),
    "phi3, half of a head rotated": ("phi3", {"head_dim": 32, "partial_rotary_factor": 0.5}),
    "gemma2": ("gemma2", {"head_dim": 32}),
    "gpt2": ("gpt2", {}),
    "deepseek2": ("deepseek2", {"kv_lora_rank": 64, "qk_rope_head_dim": 16}),
    "deepseek2, latents of no kernel": ("deepseek2", {}),
}
# (model, cache layout; None: no cache) -> the row, and the fused calls of a forward pass over two or three layers
CHOSEN = {
    ("llama", "dynamic"): ("layers", {"run_layers": 1}),
    ("llama", "static"): ("layers", {"run_layers": 1}),
    ("llama", "paged"): ("layers", {"run_layers": 1}),
    ("llama", "window:40"): ("layers", {"run_layers": 1}),
    ("llama", "sinks:4+40"): ("layers", {"run_layers": 1}),
    ("llama", "none"): ("net-steps", {"feed_forward": 2}),
    ("llama", None): ("net-steps", {"feed_forward": 2}),
    ("llama, heads of no store", "dynamic"): ("net-steps", {"feed_forward": 2}),
    ("llama, relu", "dynamic"): ("attention-steps", {"attention_step": 2}),
    ("llama, relu", None): ("python", {}),
    ("mistral", "window"): ("layers", {"run_layers": 1}),
    ("qwen2, a window in one layer", "dynamic"): ("steps", {"attention_step": 2, "feed_forward": 2}),
    ("qwen2, a window in one layer", "window"): ("steps", {"attention_step": 2, "feed_forward": 2}),
    ("qwen3moe", "dynamic"): ("steps", {"attention_step": 2, "PackedExperts": 2}),
    ("qwen3moe", None): ("net-steps", {"PackedExperts": 2}),
    ("phi3, half of a head rotated", "dynamic"): ("net-steps", {"feed_forward": 2}),
    ("gemma2", "dynamic"): ("python", {}),
    ("gpt2", "dynamic"): ("python", {}),
    ("deepseek2", "dynamic"): ("latent-layers", {"run_mla_layers": 1}),
    ("deepseek2", "paged"): ("latent-layers", {"run_mla_layers": 1}),
    ("deepseek2", "none"): ("net-steps", {"feed_forward": 1, "PackedExperts": 2}),
    ("deepseek2, latents of no kernel", "dynamic"): ("net-steps", {"feed_forward": 1, "PackedExperts": 2}),
}
FORCED = {
    "layers": {"run_layers": 1},
    "steps": {"attention_step": 2, "feed_forward": 2},
    "attention-steps": {"attention_step": 2},
    "net-steps": {"feed_forward": 2},
    "python": {},
}
TOKENS = torch.randint(150, (2, 6), generator=torch.Generator().manual_seed(0))


def model_of(name: str, format_of_layer_0: str = "bf16", device: str = "cpu", **loading) -> Model:
    kind, changes = MODELS[name]
    config = small_config(kind, **changes)
    weights = random_weights(config)
    formats = {name: "bf16" for name, weight in weights.items() if weight.ndim == 2}
    formats |= {name: format_of_layer_0 for name in formats if "layers.0.self_attn.o" in name}
    return load_model(ArraySource(config, weights, formats), RunOptions(device=device), **loading)


@pytest.mark.parametrize("name, layout", [pytest.param(*case, id=f"{case[0]}, {case[1]}") for case in CHOSEN])
def test_the_chosen_path_runs(name, layout, monkeypatch):
    calls = count_fused_calls(monkeypatch)
    model = model_of(name)
    path, expected = CHOSEN[name, layout]
    cache = (
        model._uncached(torch.zeros(2, 6, dtype=torch.int64))
        if layout is None
        else model.new_cache(2, 20, spec=spec_of(layout))
    )
    cache.begin(TOKENS)
    assert model.paths.choose(cache, 6)[0].name == path
    model(TOKENS, None if layout is None else model.new_cache(2, 20, spec=spec_of(layout)))
    assert calls == expected


@pytest.mark.parametrize("path", FORCED)
def test_the_forced_path_runs(path, monkeypatch):
    """A prompt and a decode step, over a cache that the best path takes; with the same bits."""
    calls = count_fused_calls(monkeypatch)
    best, forced = model_of("llama"), model_of("llama", path=path)
    expected, caches = [], [model.new_cache(2, 20) for model in (best, forced)]
    for tokens in (TOKENS, TOKENS[:, :1]):
        expected.append(best(tokens, caches[0]))
    assert calls == {"run_layers": 2}
    calls.clear()
    for tokens, logits in zip((TOKENS, TOKENS[:, :1]), expected, strict=True):
        assert_close(forced(tokens, caches[1]), logits)
    assert calls == {name: 2 * count for name, count in FORCED[path].items()}


def test_the_forced_path_of_latent_attention_runs(monkeypatch):
    calls = count_fused_calls(monkeypatch)
    best, forced = model_of("deepseek2"), model_of("deepseek2", path="python")
    expected = best(TOKENS, best.new_cache(2, 20))
    assert calls == {"run_mla_layers": 1}
    calls.clear()
    assert_close(forced(TOKENS, forced.new_cache(2, 20)), expected)
    assert not calls


def test_a_layer_that_is_not_packed_runs_in_python(monkeypatch):
    calls = count_fused_calls(monkeypatch)
    model = model_of("llama", format_of_layer_0="w3g4")  # groups of no whole step of 32: no kernel
    assert model.paths.names == ["steps", "attention-steps", "net-steps", "python"]
    model(TOKENS, model.new_cache(2, 20))
    assert calls == {"attention_step": 1, "feed_forward": 2}


def test_the_reference_has_only_the_python_path():
    assert model_of("llama", impl="reference").paths.names == ["python"]


def test_python_runs_everything_and_is_the_last_row():
    assert [path.name for path in PATHS if path.takes is None and path.suits is PATHS[-1].suits] == ["python"]
    assert PATH_NAMES == ("auto", *(path.name for path in PATHS)) and PATHS[-1].name == "python"


def test_a_path_that_the_model_has_not_is_refused():
    with pytest.raises(InputError, match=r"path 'layers' needs another architecture or packed weights; .*: python"):
        model_of("gpt2", path="layers")
    with pytest.raises(
        InputError, match=r"path 'latent-layers' needs .*: layers, steps, attention-steps, net-steps, p"
    ):
        model_of("llama", path="latent-layers")


def test_a_cache_that_the_forced_path_does_not_take_is_refused():
    model = model_of("llama", path="layers")
    with pytest.raises(InputError, match="path 'layers' does not take a forward pass of 6 tokens over a NoCache"):
        model(TOKENS)


def test_unknown_paths_list_the_known():
    with pytest.raises(InputError, match=r"path 'pyton' is unknown; known: auto, layers, .*; did you mean 'python'"):
        model_of("llama", path="pyton")


def test_a_device_has_no_paths():
    with pytest.raises(InputError, match="path 'python' runs on the CPU alone; got device 'cuda'"):
        model_of("llama", path="python", device="cuda")


@pytest.mark.parametrize("is_packed", [True, False], ids=["packed", "not packed"])
@pytest.mark.parametrize("in_stores", [True, False], ids=["stores", "torch"])
@pytest.mark.parametrize("name", MODELS)
def test_the_path_is_planned_before_there_are_weights(name, in_stores, is_packed):
    kind, changes = MODELS[name]
    planned = planned_path(
        ModelConfig.from_hf(small_config(kind, **changes)), is_packed=is_packed, in_stores=in_stores
    ).name
    best = {"llama": "layers", "llama, heads of no store": "layers", "mistral": "layers"}
    best |= {"qwen2, a window in one layer": "steps", "qwen3moe": "steps", "llama, relu": "attention-steps"}
    over_torch = {"llama, relu", "gemma2", "gpt2"}
    if is_packed and in_stores and name in best:
        assert planned == best[name]
    else:
        assert planned == ("python" if name in over_torch or not is_packed else "net-steps")
