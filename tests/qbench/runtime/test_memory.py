"""Predicted memory against the real memory of load, cache and a forward pass."""

import weakref

import pytest
import torch
from support.architectures import KINDS, random_weights, small_config
from support.array_source import ArraySource
from support.close import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from qbench.runtime import ModelConfig, load_model, predict_memory
from qbench.runtime.layers.paths import planned_path
from qbench.runtime.workspace import workspace_bytes
from quant.extension import has_cpu_kernels

needs_cpu_kernels = pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")


class PeakBytes(TorchDispatchMode):
    """The most bytes alive at once of all storages made inside the block."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = {
            leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
        }
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata not in given | self.known:
                self.track(leaf.untyped_storage())
        return out

    def track(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        self.known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self.drop, key, size)

    def drop(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.live -= size


def source(tied: bool = False, format_name: str = "f32", **changes) -> ArraySource:
    config = small_config(tie_word_embeddings=tied, **changes)
    weights = random_weights(config)
    return ArraySource(config, weights, {name: format_name for name, weight in weights.items() if weight.ndim == 2})


@pytest.mark.parametrize("format_name", ["f32", "bf16", "q8_0", "q4_0"])
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_resident_bytes_match_the_loaded_model(format_name, tied, impl):
    model_source = source(tied, format_name, vocab_size=157)
    predicted = predict_memory(model_source, context=8, impl=impl)
    assert predicted.resident_bytes == load_model(model_source, impl=impl).weight_bytes


@pytest.mark.parametrize("format_name, bits", [("bf16", 16), pytest.param("q8_0", 8.5, marks=needs_cpu_kernels)])
def test_a_tied_table_is_held_once(format_name, bits):
    matrices = sum(weight.size for weight in random_weights(small_config(tie_word_embeddings=True)).values())
    norms = sum(weight.size for weight in random_weights(small_config()).values() if weight.ndim == 1)
    held = load_model(source(tied=True, format_name=format_name)).weight_bytes
    assert held == (matrices - norms) * bits / 8 + 4 * norms


def test_weights_by_format_are_the_stored_bytes():
    predicted = predict_memory(source(format_name="q8_0"), context=8)
    matrices = sum(weight.size for weight in random_weights(small_config()).values() if weight.ndim == 2)
    norms = sum(weight.size for weight in random_weights(small_config()).values() if weight.ndim == 1)
    assert predicted.weights_by_format == {"q8_0": matrices // 32 * 34, "f32": 4 * norms}
    assert predicted.weights_bytes == matrices // 32 * 34 + 4 * norms


@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_kv_bytes_match_the_cache(impl):
    cache = load_model(source(), impl=impl).new_cache(batch=3, capacity=40)
    predicted = predict_memory(source(), context=40, batch=3, impl=impl)
    assert predicted.kv_bytes == cache.size_bytes
    assert predicted.kv_bytes_per_token == cache.bytes_per_token


def test_total_is_the_sum_of_the_parts():
    predicted = predict_memory(source(), context=100, batch=2)
    assert predicted.total_bytes == sum(
        getattr(predicted, part) for part in ("resident_bytes", "kv_bytes", "workspace_bytes")
    )


@pytest.mark.parametrize("changes", [{}, {"intermediate_size": 32}], ids=["ffn is the peak", "attention is the peak"])
def test_workspace_is_near_the_measured_peak(changes):
    config = small_config(**changes)
    model = load_model(ArraySource(config, random_weights(config)), impl="reference")
    tokens = torch.zeros(2, 200, dtype=torch.int64)
    cache = model.new_cache(batch=2, capacity=200)
    with PeakBytes() as peak:
        model(tokens, cache, last_only=True)
    assert_close(workspace_bytes(ModelConfig.from_hf(config), 200, batch=2) / peak.peak, 1.0, atol=2**-7)


@pytest.mark.parametrize("format_name", ["f32", "q8_0"])
@pytest.mark.parametrize("changes", [{}, {"intermediate_size": 32}], ids=["ffn is the peak", "attention is the peak"])
def test_kernels_need_no_more_workspace(monkeypatch, changes, format_name):
    model_source = source(format_name=format_name, **changes)
    model = load_model(model_source)
    tokens, cache = torch.zeros(2, 200, dtype=torch.int64), model.new_cache(batch=2, capacity=200)
    peak, from_numpy = PeakBytes(), torch.from_numpy

    def tracked(array) -> torch.Tensor:
        """Outputs of kernels, which no operation of torch has made."""
        tensor = from_numpy(array)
        if tensor.untyped_storage()._cdata not in peak.known:
            peak.track(tensor.untyped_storage())
        return tensor

    monkeypatch.setattr(torch, "from_numpy", tracked)
    with peak:
        model(tokens, cache, last_only=True)
    assert peak.peak <= workspace_bytes(ModelConfig.of(model_source), 200, batch=2) * (1 + 2**-7)  # and positions


def qwen3_moe(**changes) -> ArraySource:
    config = small_config("qwen3moe", **changes)
    return ArraySource(config, random_weights(config))


def test_experts_are_held_as_predicted():
    predicted = predict_memory(qwen3_moe(), context=8)
    assert predicted.resident_bytes == load_model(qwen3_moe()).weight_bytes


def test_workspace_of_one_expert_for_all_tokens_is_near_the_measured_peak():
    source = qwen3_moe(num_experts=2, num_experts_per_tok=2, moe_intermediate_size=256)
    model = load_model(source, impl="reference")
    tokens, cache = torch.zeros(2, 120, dtype=torch.int64), model.new_cache(batch=2, capacity=120)
    with PeakBytes() as peak:
        model(tokens, cache, last_only=True)
    assert_close(workspace_bytes(ModelConfig.of(source), 120, batch=2) / peak.peak, 1.0, atol=2**-5)


def test_workspace_bounds_a_router():
    source = qwen3_moe(moe_intermediate_size=256)
    model = load_model(source)
    tokens = torch.randint(160, (2, 120), generator=torch.Generator().manual_seed(1))
    cache = model.new_cache(batch=2, capacity=120)
    with PeakBytes() as peak:
        model(tokens, cache, last_only=True)
    assert peak.peak <= workspace_bytes(ModelConfig.of(source), 120, batch=2)


@pytest.mark.parametrize("batch, num_tokens", [(2, 120), (5, 250)], ids=["all at once", "in turns"])
@pytest.mark.parametrize(
    "changes", [{}, {"q_lora_rank": 48}, {"v_head_dim": 8}], ids=["plain", "low-rank queries", "narrow values"]
)
def test_workspace_of_latent_attention_is_near_the_measured_peak(changes, batch, num_tokens):
    config = small_config("deepseek2", intermediate_size=32, moe_intermediate_size=8, **changes)
    source = ArraySource(config, random_weights(config))
    model = load_model(source, impl="reference")
    tokens = torch.zeros(batch, num_tokens, dtype=torch.int64)
    cache = model.new_cache(batch=batch, capacity=num_tokens)
    with PeakBytes() as peak:
        model(tokens, cache, last_only=True)
    assert_close(workspace_bytes(ModelConfig.of(source), num_tokens, batch) / peak.peak, 1.0, atol=2**-4)


@pytest.mark.parametrize("sizes", [{}, {"kv_lora_rank": 64, "qk_rope_head_dim": 16}], ids=["torch", "kernels"])
@pytest.mark.parametrize("name", ["f32", "bf16", "q8_0"])
def test_a_latent_model_is_held_and_cached_as_predicted(sizes, name):
    config = small_config("deepseek2", **sizes)
    weights = random_weights(config)
    formats = {key: name for key, weight in weights.items() if weight.ndim == 2 and weight.shape[1] % 32 == 0}
    source = ArraySource(config, weights, formats)
    model, predicted = load_model(source), predict_memory(source, context=40)
    assert predicted.resident_bytes == model.weight_bytes
    assert predicted.kv_bytes == model.new_cache(capacity=40).size_bytes


@needs_cpu_kernels
@pytest.mark.parametrize(
    "kind, changes",
    [pytest.param(kind, {}, id=kind) for kind in KINDS]
    + [
        pytest.param("qwen3", {"head_dim": 32}, id="qwen3, heads of 32"),
        pytest.param("qwen3moe", {"head_dim": 32}, id="qwen3moe, heads of 32"),
        pytest.param("llama", {"hidden_act": "relu"}, id="llama, relu"),
        pytest.param("phi3", {"partial_rotary_factor": 0.5}, id="phi3, half of a head rotated"),
    ],
)
def test_the_planned_path_is_the_one_that_runs(kind, changes):
    config = small_config(kind, **changes)
    weights = random_weights(config)
    model_source = ArraySource(config, weights, {name: "bf16" for name, weight in weights.items() if weight.ndim == 2})
    model = load_model(model_source)
    cache = model.new_cache(capacity=200)
    cache.begin(torch.zeros(1, 200, dtype=torch.int64))
    runs, _ = model.paths.choose(cache, 200)
    config = ModelConfig.of(model_source)
    assert planned_path(config, is_packed=True, in_stores=cache.has_layer_views(1)) is runs
