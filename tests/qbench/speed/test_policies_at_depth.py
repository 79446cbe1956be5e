"""`qbench bench` at depth under every policy: each repetition starts with the tokens that the first one had."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from qbench.policies import CachePolicy, policy_names
from qbench.policies.policy import LayerState
from qbench.run.options import RunOptions
from qbench.runtime import Model, load_model
from qbench.runtime.caches.policy.growth import GROWTH
from qbench.runtime.caches.storage.kernel_storage import KernelStorage
from qbench.runtime.caches.storage.kv_storage import BLOCK_TOKENS
from qbench.speed.speed_worker import TimedModel
from quant.errors import InputError

DEPTH, BUDGET = 400, 128
OPTIONS = {
    "full": "full",
    "window": f"window:{BUDGET}",
    "sinks": f"sinks:4+{BUDGET - 4}",
    "fastgen": "fastgen",
    "infllm": f"infllm:budget={BUDGET},block=16,init=16,local=32",
}
IN_ONE_PASS = {name: OPTIONS.get(name, f"{name}:budget={BUDGET}") for name in policy_names() if name != "oracle"}
SIZES = {
    "llama": {"head_dim": 32},
    "gemma2": {"head_dim": 32, "sliding_window": 40},
    "deepseek2": {"kv_lora_rank": 64, "qk_rope_head_dim": 16, "num_experts_per_tok": 6},
}
REFUSED = {("deepseek2", name) for name in ("sinks", "adakv", "fastgen", "quest", "infllm")}


def model_of(architecture: str, policy: str, context: int = 1024) -> Model:
    config = small_config(architecture, **SIZES[architecture], max_position_embeddings=context)
    return load_model(ArraySource(config, random_weights(config)), RunOptions(policy=policy))


class Recorded(TimedModel):
    """Keeps the logits of its forward passes."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.logits: list[torch.Tensor] = []
        self.run = lambda tokens, cache: self.logits.append(model(tokens, cache, last_only=True))


@pytest.mark.parametrize("name", IN_ONE_PASS)
@pytest.mark.parametrize("architecture", SIZES)
def test_repetitions_compute_the_same(architecture: str, name: str) -> None:
    if (architecture, name) in REFUSED:
        with pytest.raises(InputError, match=r"latent|rotates its keys"):
            model_of(architecture, IN_ONE_PASS[name]).new_cache(1, DEPTH)
        return
    timed = Recorded(model_of(architecture, IN_ONE_PASS[name]))
    held, new = torch.randint(150, (2, 2, DEPTH), generator=torch.Generator().manual_seed(0))
    timed.hold(held.tolist(), 2 * DEPTH)
    # Repetitions of prefill, of decode and again: each begins behind the same tokens.
    first, *others = [_logits(timed, new[:, :count].tolist(), step) for count, step in ((300, 300), (20, 1)) * 2]
    assert torch.equal(first, others[1]) and torch.equal(others[0], others[2])


def _logits(timed: Recorded, tokens: list[list[int]], step: int) -> torch.Tensor:
    timed.logits = []
    timed.seconds(tokens, step)
    return torch.cat(timed.logits, 1)


def test_a_mark_is_forgotten_when_other_tokens_replace_its_tokens() -> None:
    held, other, new = torch.randint(150, (3, 1, DEPTH), generator=torch.Generator().manual_seed(1))
    for name in ("window", "sinks", "h2o"):
        model = model_of("llama", IN_ONE_PASS[name])
        cache, fresh = model.new_cache(), model.new_cache()
        model(held, cache)
        cache.mark()
        cache.truncate(0)
        for one in (cache, fresh):
            model(other, one)
        cache.truncate(DEPTH)
        assert torch.equal(model(new[:, :8], cache), model(new[:, :8], fresh))


@pytest.mark.parametrize("name", ["snapkv", "h2o"])
def test_a_layer_that_grows_in_decode_copies_its_tokens_seldom(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, resize = [], KernelStorage.resize
    monkeypatch.setattr(KernelStorage, "resize", lambda self, size: (sizes.append(size), resize(self, size))[1])
    model = model_of("llama", f"{name}:budget=2112", context=2400)
    cache = model.new_cache()
    model(torch.arange(2200)[None] % 150, cache, last_only=True)
    sizes.clear()
    for token in range(64):
        model(torch.tensor([[token]]), cache)
    # 64 more tokens are 4 blocks, and there is room for two at once.
    grown = 2 if name == "snapkv" else 1
    assert len(sizes) == grown * model.config.num_layers
    held = 2112 + (64 if name == "snapkv" else 1)
    assert held <= max(sizes) <= held * (1 + 1 / GROWTH) + BLOCK_TOKENS


def test_decode_steps_give_no_weights_to_a_policy_that_only_prompts_concern(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, update = [], CachePolicy.update

    def noted(self: CachePolicy, state: LayerState, weights: torch.Tensor) -> torch.Tensor:
        seen.append(self.name)
        return update(self, state, weights)

    monkeypatch.setattr(CachePolicy, "update", noted)
    for name in ("snapkv", "h2o"):
        model = model_of("llama", IN_ONE_PASS[name])
        cache = model.new_cache()
        model(torch.arange(300)[None] % 150, cache)
        seen.clear()
        model(torch.tensor([[7]]), cache)
        assert seen == ([] if name == "snapkv" else ["h2o"])
