"""`qbench bench` at depth under every policy: each repetition starts with the tokens that the first one had."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from qbench.policies import policy_names
from qbench.run_options import RunOptions
from qbench.runtime import Model, load_model
from qbench.speed.speed import measure_speed
from qbench.speed.speed_case import SpeedCase
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
KEEPS_MORE = ("full", "quest", "infllm")


def model_of(architecture: str, policy: str) -> Model:
    config = small_config(architecture, **SIZES[architecture], max_position_embeddings=1024)
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


@pytest.mark.parametrize("name", sorted(IN_ONE_PASS.keys() - {"fastgen"}))  # it has no budget
def test_bytes_held_are_those_of_the_budget(name: str) -> None:
    model = model_of("llama", IN_ONE_PASS[name])
    figures = measure_speed(model, SpeedCase(pp=8, tg=4, depth=DEPTH, repetitions=1))
    row = model_of("llama", "full").new_cache(1, DEPTH).bytes_per_token
    spare = 16 + 12  # the last block of tokens is held whole, and tokens of a bench may stay
    assert figures.kv_bytes_held is not None
    assert (figures.kv_bytes_held > (BUDGET + spare) * row) == (name in KEEPS_MORE)


def test_a_mark_is_forgotten_when_other_tokens_replace_its_own() -> None:
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
