"""Tokens that our policies keep, next to those that kvpress's presses keep: same weights, same tokens, same places."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.caches import policy_cache
from support.copying_model import write_copying_model
from support.transformers_llama import transformers_llama

from qbench.run.options import RunOptions
from qbench.runtime import Tokenizer, load_model
from qbench.runtime.caches.policy.policy_cache import PolicyCache
from qbench.sources import open_source
from quant.source import Source

kvpress = pytest.importorskip("kvpress", reason="kvpress is not installed; `make test-interop` does")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

WINDOW, KERNEL, SINKS, FUTURE = 8, 5, 4, 64
LENGTHS, SHARES = (61, 150, 400), (0.15, 0.3, 0.5, 0.8)
HEADS = {"mha": 4, "gqa": 2, "mqa": 1}
NUM_LAYERS, VOCAB = 4, 512

Positions = list[list[list[int]]]  # [layers][G][n]

# policy with {} for its budget in tokens -> press that removes a share
SAME: dict[str, Callable[[float], Any]] = {
    f"snapkv:{{}},window={WINDOW},kernel={KERNEL}": lambda ratio: kvpress.SnapKVPress(ratio, WINDOW, KERNEL),
    "tova:{}": lambda ratio: kvpress.TOVAPress(ratio),
    "knorm:{}": lambda ratio: kvpress.KnormPress(ratio),
    "keydiff:{}": lambda ratio: kvpress.KeyDiffPress(ratio),
    f"expected-attention:{{}},future={FUTURE},sinks={SINKS},epsilon=0.01": lambda ratio: kvpress.ExpectedAttentionPress(
        ratio, n_future_positions=FUTURE, n_sink=SINKS, epsilon=0.01
    ),
    f"adakv:{{}},window={WINDOW},kernel={KERNEL},alpha=0.4": lambda ratio: kvpress.AdaKVPress(
        kvpress.SnapKVPress(ratio, WINDOW, KERNEL), alpha_safeguard=0.4
    ),
    "pyramidkv:{},window=8,kernel=5,beta=4": lambda ratio: kvpress.PyramidKVPress(ratio, WINDOW, KERNEL, beta=4),
}


@pytest.fixture(scope="session", autouse=True)
def peers() -> None:
    """kvpress is the only peer that is needed here."""


@pytest.fixture(scope="module", params=HEADS)
def models(request) -> tuple[Any, Any]:
    """Our model and transformers', with the same random weights."""
    config = small_config(
        "llama",
        num_key_value_heads=HEADS[request.param],
        num_hidden_layers=NUM_LAYERS,
        max_position_embeddings=1024,
        vocab_size=VOCAB,
    )
    weights = random_weights(config)
    theirs = transformers_llama(config, weights)
    theirs.set_attn_implementation("sdpa")
    return ArraySource(config, weights), theirs


def tokens_of(length: int) -> torch.Tensor:
    """All different: keys of equal tokens in the first layer have equal norms, and knorm would have ties."""
    return torch.randperm(VOCAB, generator=torch.Generator().manual_seed(length))[None, :length]


def ratio_for(length: int, kept: int) -> float:
    """The share to remove after which kvpress, which rounds down, keeps `kept` tokens."""
    ratio = 1 - (kept + 1e-6) / length
    assert int(length * (1 - ratio)) == kept
    return ratio


@torch.inference_mode()
def kept_by_press(model: Any, press: Any, tokens: torch.Tensor) -> Positions:
    """Found by the keys: no two keys of a head are equal, as their rotations differ."""
    full, compressed = transformers.DynamicCache(), transformers.DynamicCache()
    model(tokens, past_key_values=full)
    with press(model):
        model(tokens, past_key_values=compressed)
    found = []
    for layer, (whole, part) in enumerate(zip(full.layers, compressed.layers, strict=True)):
        masked = getattr(model.model.layers[layer].self_attn, "masked_key_indices", None)
        stays = (part.keys[0, :, :, None] == whole.keys[0, :, None]).all(-1).any(1)  # [G, S]
        if masked is not None:
            stays[masked[1:]] = False
        found.append([each.nonzero()[:, 0].tolist() for each in stays])
    return found


@torch.inference_mode()
def kept_by_policy(source: Source, policy: str, tokens: torch.Tensor) -> Positions:
    model = load_model(source, RunOptions(policy=policy), impl="reference")
    cache = model.new_cache(1)
    assert isinstance(cache, PolicyCache)
    model(tokens, cache)
    return [cache.held_positions(layer)[0] for layer in range(model.config.num_layers)]


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("policy", SAME, ids=lambda text: text.partition(":")[0])
def test_a_policy_keeps_the_same_tokens_as_the_press(models, policy: str, length: int, share: float) -> None:
    source, theirs = models
    budget = max(int(share * length), WINDOW + 1)
    found = kept_by_policy(source, policy.format(budget), tokens_of(length))
    assert found == kept_by_press(theirs, SAME[policy](ratio_for(length, budget)), tokens_of(length))
    assert sum(len(head) for layer in found for head in layer) < NUM_LAYERS * len(found[0]) * length


@pytest.mark.parametrize("length", LENGTHS)
def test_sinks_and_a_window_match_streaming_llm(models, length: int) -> None:
    source, theirs = models
    model = load_model(source, RunOptions(), impl="reference")
    for share in SHARES:
        budget = int(share * length)
        cache = policy_cache(model.config, f"sinks:{SINKS}+{budget - SINKS}")
        with torch.inference_mode():
            model(tokens_of(length), cache)
        press = kvpress.StreamingLLMPress(ratio_for(length, budget), n_sink=SINKS)
        expected = kept_by_press(theirs, press, tokens_of(length))
        assert [cache.held_positions(layer)[0] for layer in range(NUM_LAYERS)] == expected


def test_the_pyramid_has_several_budgets(models) -> None:
    """Otherwise the comparison of pyramidkv would be the one of snapkv."""
    source, _ = models
    found = kept_by_policy(source, "pyramidkv:120,window=8,kernel=5,beta=4", tokens_of(400))
    assert len({len(layer[0]) for layer in found}) == NUM_LAYERS


NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
NEEDLE = "One of the special magic numbers for red-house is: 1583926. "
QUESTION = "What is the special magic number for red-house mentioned in the provided text?"


@pytest.mark.parametrize("kernel, num_digits", [(5, 2), (9, 4), (15, 7)])
def test_a_needle_stays_as_far_as_the_kernel_reaches_it(tmp_path, kernel: int, num_digits: int) -> None:
    """The question attends to the token before the number. The press loses the same digits."""
    source = open_source(str(write_copying_model(tmp_path / "copying", {"Ġis": ":"})))
    theirs = transformers_llama(source.config, load_file(tmp_path / "copying" / "model.safetensors"))
    theirs.set_attn_implementation("sdpa")
    assert source.tokenizer is not None
    words, window, budget = Tokenizer(source.tokenizer), 64, 128
    tokens = words.encode(NOISE * 8 + NEEDLE + NOISE * 8 + QUESTION)
    number = [place for place, token in enumerate(tokens) if words.decode([token]).strip().isdigit()]
    assert len(number) == 7
    press = kvpress.SnapKVPress(ratio_for(len(tokens), budget), window, kernel)
    policy = f"snapkv:{budget},window={window},kernel={kernel}"
    rows = torch.tensor([tokens])
    for kept in (kept_by_policy(source, policy, rows), kept_by_press(theirs, press, rows)):
        assert [place for place in number if place in kept[1][0]] == number[:num_digits]
