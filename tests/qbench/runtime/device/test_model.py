"""The device model against the CPU runtime's float32: prompts of unlike lengths, steps, and one from a graph."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from support.array_source import ArraySource
from support.device_forward import facts, few_forwards, passes
from support.device_run import UNIT, Run
from support.memory_source import MemorySource

from quant.errors import InputError
from quant.formats import get_format
from quant.models import EMBEDDING
from quant.qtensor import QTensor

SHAPE = {
    "hidden_size": 256,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 256,
    "vocab_size": 64,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 4}

LOUD = [7, 100]  # input features that a norm takes past LLM.int8()'s threshold
GGUF, INTS = ("q8_0", "q4_k", "q6_k"), ("w4g128", "w4g128-asym", "w8", "w4g128 act-order")


def source_in(format_name: str, **changes) -> ArraySource:
    """Random weights; norms and tensors that an integer format cannot hold stay floats."""
    base = MemorySource(**SHAPE | changes)
    name, _, more = format_name.partition(" ")
    return ArraySource(base.config, {key: _stored(key, weight, name, more) for key, weight in base.weights.items()})


def _stored(key: str, weight: np.ndarray, name: str, more: str) -> QTensor | np.ndarray:
    fmt = get_format(name)
    if weight.ndim == 1:
        weight = 1 + weight if "norm" in key else weight
        if more == "outliers":
            weight[LOUD] *= 6
        return weight
    if key == EMBEDDING and fmt.gguf_type is None:
        return get_format("f16").quantize(weight)
    if more == "outliers":  # the first of them is known, the other one is found
        return fmt.with_outliers(fmt.quantize(weight), weight, np.array(LOUD[:1], dtype=np.int32))
    if not more:
        return fmt.quantize(weight)
    of_feature = np.random.default_rng(0).permutation(np.arange(weight.shape[1]) // fmt.group_size).astype(np.int32)
    q, scale, zero_point, _ = fmt.unpack(fmt.quantize(weight))
    return fmt.pack(q, scale, zero_point, of_feature)


def roundings(device: str) -> float:
    """Activations are rounded about 8 times per layer and thrice about it, and the residual carries the sum of

    independent ones; thrice that for the effect of norms and products.
    """
    return 3 * (8 + 3) ** 0.5 * UNIT[device]


def moved_codes(device: str) -> float:
    """With int8 activations such an error takes some codes to their neighbour. A normal row has an rms of some 32
    steps,

    so that 32 times that error of its codes move by one step, 1 / 32 of the rms; in each of a layer's 4 products.
    """
    return 3 * (4 * roundings(device) / 3 * 32) ** 0.5 / 32


def moved_fp8(device: str, products: int = 2, mantissa: int = 3) -> float:
    """Codes of FP8 are 2**-4 to 2**-3 of their size apart (e5m2: twice that), and move by so much: of keys and values,
    or of the inputs of a layer's four products.
    """
    return 3 * (products * roundings(device) / 3 / 2.0 ** -(mantissa + 1)) ** 0.5 * 2.0**-mantissa


def check(run: Run, function: Callable, source: ArraySource, bound: Callable[[str], float] = roundings) -> None:
    got, expected = run(function, source), function(source, "cpu")
    assert torch.equal(got.pop("seq_lens", torch.empty(0)), expected.pop("seq_lens", torch.empty(0)))
    for name, logits in expected.items():
        assert got[name].dtype == torch.float32 and got[name].shape == logits.shape, name
        error = (got[name] - logits).norm(dim=-1) / logits.norm(dim=-1)
        assert error.max() < bound(run.device), name


def in_every_run(names: list[str], few: tuple[str, ...]) -> list:
    others = pytest.mark.exhaustive("the interpreter takes 2 seconds for each; their kernels have tests in every run")
    return [pytest.param(name, marks=() if name in few else others) for name in names]


@pytest.mark.parametrize("format_name", in_every_run([*GGUF, *INTS, "q5_k"], ("q4_k", "q6_k", "w4g128 act-order")))
def test_every_format_matches_the_cpu(run, format_name):
    check(run, few_forwards, source_in(format_name))


INT8 = ["w8a8", "w8a8-wtensor-atensor", "llm-int8", "llm-int8 outliers"]


@pytest.mark.parametrize("format_name", in_every_run(INT8, ("w8a8-wtensor-atensor", "llm-int8 outliers")))
def test_int8_activations(run, format_name):
    check(run, few_forwards, source_in(format_name), moved_codes)


FP8 = ["fp8-w8a8", "fp8-block128", "fp8-w8a16"]


@pytest.mark.parametrize("format_name", in_every_run(FP8, ("fp8-w8a8",)))
def test_fp8_activations(run, format_name):
    check(run, few_forwards, source_in(format_name), partial(moved_fp8, products=4))


FP8_KV = {"kv-fp8-cal": 1, "kv-fp8-cal-head": 2, "kv-fp8": 0, "kv-fp8-e5m2": 0, "kv-fp8-e5m2-cal": 1}  # given scales


@pytest.mark.parametrize("name", in_every_run(list(FP8_KV), ("kv-fp8-cal", "kv-fp8")))
def test_fp8_keys_and_values(run, name):
    mantissa = 2 if "e5m2" in name else 3
    scales = [[0.01, 0.02][: FP8_KV[name]]]
    given = {"k_scale": scales, "v_scale": scales} if FP8_KV[name] else {}
    kv = {"kv_cache": {"format": name} | given}
    check(run, few_forwards, source_in("f16", **kv), partial(moved_fp8, mantissa=mantissa))


def moved_int8(device: str) -> float:
    """A head's 64 numbers span some 5 rms in 255 steps, of 1 / 51 rms each; an error of activations moves so many codes
    by one step, as in `moved_codes`.
    """
    return 3 * (2 * roundings(device) / 3 * 51) ** 0.5 / 51


@pytest.mark.parametrize("format_name, bound", [("kv-fp8", moved_fp8), ("kv-int8", moved_int8)])
def test_scales_per_token_grow_with_their_pages(run, format_name, bound):
    check(run, passes, source_in("f16", **MISTRAL, kv_cache={"format": format_name}), bound)


@pytest.mark.parametrize("changes", [QWEN2, QWEN3], ids=["qwen2", "qwen3"])
def test_families_match_the_cpu(run, changes):
    check(run, few_forwards, source_in("f16", **changes, tie_word_embeddings=False))


def test_a_window_and_all_kinds_of_passes(run):
    """A cache that grows, steps eager, captured and replayed, a cache that is cut."""
    check(run, passes, source_in("f16", **MISTRAL))


@pytest.mark.parametrize("attention", ["textbook", "sdpa", "triton"])
def test_chosen_attention(run, attention):
    """Over pages of floats with a window, and over FP8 and int8 pages; the record names it."""
    check(run, partial(passes, attention=attention), source_in("f16", **MISTRAL))
    scales = [[0.01, 0.02]]
    kv = {"kv_cache": {"format": "kv-fp8-cal-head", "k_scale": scales, "v_scale": scales}}
    check(run, partial(few_forwards, attention=attention), source_in("f16", **kv), moved_fp8)
    of_tokens = source_in("f16", kv_cache={"format": "kv-int8"})
    check(run, partial(few_forwards, attention=attention), of_tokens, moved_int8)
    _, kernels, _ = run(partial(facts, attention=attention), source_in("f16"))
    assert (kernels["paged_prefill"], kernels["paged_decode"]) == (attention, attention)
    assert (kernels["decode"] == "eager") == (attention != "triton" or run.device == "interpreter")


def test_the_record_names_the_running_kernels(run):
    """Formats without a kernel are floats, and are reported under their own name."""
    impls, kernels, weight_bytes = run(facts, source_in("q5_k"))
    float_name = {"interpreter": "f16", "cuda": "bf16"}[run.device]
    assert (
        set(impls.values()) == {f"{run.device}-{float_name}[torch] of q5_k"} and len(impls) == 7 + 1
    )  # a tied head, too
    assert kernels["paged_prefill"] == "triton" and kernels["keys_values"].endswith("float16")
    num_weights = 64 * 256 + 256 * 256 * (4 + 2) - 2 * 128 * 256 + 256 * 256 * 1
    assert weight_bytes == 2 * (num_weights + 3 * 256)
    impls, _, _ = run(facts, source_in("q4_k"))
    assert set(impls.values()) == {f"{run.device}-gguf_gemm[triton]"}


REFUSALS = {
    "experts": (
        {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 2},
        NotImplementedError,
        "got MixtralForCausalLM, expected Llama, Mistral, Qwen2 and Qwen3",
    ),
    "head": ({"head_dim": 32}, NotImplementedError, "got heads of 32, expected one of 64, 80"),
    "kv": (
        {"kv_cache": {"format": "kv-int4"}},
        NotImplementedError,
        "got kv-int4, expected one of kv-b?f16, kv-int8, kv-fp8, kv-fp8-cal",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_unsupported_models_are_refused(run, case):
    changes, error, told = REFUSALS[case]
    if "experts" in case:
        changes = changes | {"num_experts_per_tok": 1}
    with pytest.raises(error, match=told):
        run(facts, source_in("f16", **changes))


def test_devices_that_are_not_here():
    with pytest.raises(InputError, match="needs TRITON_INTERPRET=1"):
        facts(source_in("f16"), "interpreter")
