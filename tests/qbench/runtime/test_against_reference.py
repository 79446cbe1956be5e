"""The runtime against the reference decoder: every path of the layers, every cache layout that keeps all tokens."""

from collections.abc import Iterator
from functools import cache

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.cache_specs import spec_of
from support.close import assert_close
from support.logit_bounds import BF16, INT8, float32_bound, relative_rms, rounded_bound

from qbench.run.cache_spec import DYNAMIC, NONE, PAGED, STATIC
from qbench.runtime import Model, load_model
from qbench.runtime.reference_decoder import ReferenceDecoder
from qbench.runtime.text.tokenizer import Tokenizer
from qbench.sources import open_source
from quant.extension import has_cpu_kernels
from quant.source import Source

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
TWO_WINDOWS = {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1}
MODELS = {
    "llama": ("llama", {"head_dim": 32}),
    "llama, biases": ("llama", {"head_dim": 32, "attention_bias": True, "mlp_bias": True}),
    "llama, tied": ("llama", {"head_dim": 32, "tie_word_embeddings": True}),
    "llama, llama3 RoPE": (
        "llama",
        {"head_dim": 32, "rope_scaling": {**LLAMA3, "original_max_position_embeddings": 64}},
    ),
    "llama, heads of no store": ("llama", {"head_dim": 24}),
    "mistral": ("mistral", {"head_dim": 32}),
    "qwen2, window in one layer": ("qwen2", {"head_dim": 32, **TWO_WINDOWS}),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "phi3, half of a head rotated": ("phi3", {"head_dim": 32, "partial_rotary_factor": 0.5}),
}
LAYOUTS = (NONE, DYNAMIC, STATIC, PAGED)  # those that keep all tokens
ROUNDING = {"bf16": BF16, "q8_0": INT8}  # of a product's inputs and sums, at most
# The rows of layers/paths.py that run a model over a cache in the kernels' stores, and over any other cache
OVER_STORES = ("layers", "steps", "attention-steps", "net-steps", "python")
OVER_OTHERS = ("net-steps", "python")
STORE_PATHS = {
    "llama, heads of no store": OVER_OTHERS,
    "qwen2, window in one layer": OVER_STORES[1:],
    "phi3, half of a head rotated": OVER_OTHERS,
}
TOKENS = torch.randint(160, (2, 90), generator=torch.Generator().manual_seed(2))
TEXT = "The old lighthouse stood on the cliff. Every evening its keeper climbed the stairs and lit the lamp. " * 2
PARTS = (60, 17, 1, 9, 1, 1, 1)  # a prompt, then more tokens at once and one by one


@cache
def source_of(name: str, format_name: str = "f32") -> Source:
    if name not in MODELS:
        return open_source(name)
    kind, changes = MODELS[name]
    config = small_config(kind, **changes)
    weights = random_weights(config)
    return ArraySource(config, weights, {name: format_name for name, weight in weights.items() if weight.ndim == 2})


@cache
def expected_logits(name: str, format_name: str = "f32") -> torch.Tensor:
    return ReferenceDecoder(source_of(name, format_name))(TOKENS)


def paths_over(name: str, layout: str) -> tuple[str, ...]:
    """Every row that can run the model over this cache layout. Windows in some layers make a cache of two parts."""
    if not has_cpu_kernels():
        return ("python",)
    in_stores = layout in (DYNAMIC, STATIC, PAGED) or (layout == "window" and name == "mistral")
    return STORE_PATHS.get(name, OVER_STORES) if in_stores else OVER_OTHERS


@cache
def model_of(name: str, format_name: str, path: str, impl: str) -> Model:
    return load_model(source_of(name, format_name), path=path, impl=impl)


def models_over(layout: str, name: str, format_name: str = "f32") -> Iterator[Model]:
    """The model on each of its paths over this layout, and on torch alone."""
    for path in paths_over(name, layout):
        yield model_of(name, format_name, path, "auto")
    yield model_of(name, format_name, "python", "reference")


def all_logits(model: Model, layout: str) -> torch.Tensor:
    """Logits of all tokens, in parts over one cache."""
    held = model.new_cache(2, TOKENS.shape[1], spec=spec_of(layout))
    return torch.cat([model(part, held) for part in TOKENS.split(PARTS, dim=1)], dim=1)


def assert_close_by_impl(model: Model, logits: torch.Tensor, expected: torch.Tensor, rounding: float) -> None:
    """Kernels round activations further, so their logits are compared by RMS; torch's are compared one by one."""
    if model.impl == "reference":
        assert_close(logits, expected, atol=float32_bound(model.config, expected))
    else:
        assert_close(relative_rms(logits, expected), 0, atol=rounded_bound(model.config, rounding))


@pytest.mark.parametrize(
    "name, layout",
    [(name, layout) for name in MODELS for layout in LAYOUTS]
    # which keeps all tokens that a later query of these models sees
    + [("mistral", "window"), ("qwen2, window in one layer", "window")],
)
def test_float32_weights(name, layout):
    expected = expected_logits(name)
    assert expected.std() > 0.3, "logits this small would let a wrong model pass"
    for model in models_over(layout, name):
        assert_close(all_logits(model, layout), expected, atol=float32_bound(model.config, expected))


@pytest.mark.parametrize("name", MODELS)
def test_without_a_cache(name):
    expected = expected_logits(name)
    for model in models_over(NONE, name):
        assert_close(model(TOKENS), expected, atol=float32_bound(model.config, expected))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["llama", "qwen3"])
@pytest.mark.parametrize("format_name", ROUNDING)
def test_rounded_weights(name, format_name, layout):
    expected = expected_logits(name, format_name)
    for model in models_over(layout, name, format_name):
        assert_close_by_impl(model, all_logits(model, layout), expected, ROUNDING[format_name])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_varlen_batches(name, layout):
    """Sequences of unequal lengths in one forward pass: each row has the logits of its own text."""
    expected = expected_logits(name)
    for model in models_over(layout, name):
        logits = model(TOKENS, model.new_cache(2, TOKENS.shape[1], spec=spec_of(layout)), num_valid=[90, 41])
        bound = float32_bound(model.config, expected)
        assert_close(logits[0], expected[0], atol=bound)
        assert_close(logits[1, :41], expected[1, :41], atol=bound)


@cache
def trained() -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens of a text, and the logits of the weights of ref:llama."""
    source = source_of("ref:llama")
    tokens = torch.tensor([Tokenizer(source.tokenizer).encode(TEXT)])
    return tokens, ReferenceDecoder(source)(tokens)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_reference_model(layout):
    """Trained weights, which have outliers and peaked attention."""
    tokens, expected = trained()
    for model in models_over(layout, "ref:llama"):
        held = model.new_cache(1, tokens.shape[1], spec=spec_of(layout))
        logits = torch.cat([model(part, held) for part in tokens.split((20, 7, tokens.shape[1] - 27), dim=1)], dim=1)
        assert_close_by_impl(model, logits, expected, BF16)


WRONG = {
    "norm epsilon": {"rms_norm_eps": 2e-5},
    "RoPE theta": {"rope_theta": 10100.0},
    "window": {"sliding_window": 25},
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
def test_a_wrong_constant_of_the_runtime_is_found(changes):
    expected, source = expected_logits("mistral"), source_of("mistral")
    wrong = ArraySource(source.config | changes, random_weights(source.config))
    for path in ("layers", "steps", "python") if has_cpu_kernels() else ("python",):
        model = load_model(wrong, path=path)
        with pytest.raises(AssertionError, match="elements off"):
            assert_close(all_logits(model, DYNAMIC), expected, atol=float32_bound(model.config, expected))
