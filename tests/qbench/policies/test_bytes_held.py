"""Predicted bytes of a cache under every policy are those that it holds, after a prompt and after decode steps."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from qbench.policies import policy_names
from qbench.run.cache_spec import CacheSpec
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.caches.storage.kv_storage import BLOCK_TOKENS
from qbench.runtime.memory import MemoryPredictor
from qbench.runtime.workspace import FLOAT_BYTES
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY

PROMPT, BUDGET, BATCH = 300, 100, 2
OPTIONS = {
    "full": "full",
    "window": f"window:{BUDGET}",
    "sinks": f"sinks:4+{BUDGET - 4}",
    "fastgen": "fastgen:target=0.5",
    "infllm": f"infllm:budget={BUDGET},block=16,init=16,local=32",
    "scissorhands": f"scissorhands:budget={BUDGET},drop=0.2",
    "pyramidkv": f"pyramidkv:budget={BUDGET},window=8,beta=4",
}
RUN = {name: OPTIONS.get(name, f"{name}:budget={BUDGET}") for name in policy_names() if name != "oracle"}
IN_POOL = ("window", "full", "quest", "infllm")  # whose capacity is there from the beginning
BY_HEAD = ("adakv", "fastgen")
OTHERS = pytest.mark.exhaustive("others of these combinations are in every run")
LATE = 20  # steps: more than a block of tokens


def source(architecture: str = "llama", kv: str | None = None, **sizes: int) -> ArraySource:
    config = small_config(architecture, **({"head_dim": 32, "max_position_embeddings": 4096} | sizes))
    entry = {} if kv is None else {CONFIG_KEY: KVScheme(KV_FORMATS[kv]).config_entry()}
    return ArraySource(config | entry, random_weights(config))


def held_and_predicted(
    model_source: ArraySource, policy: str, impl: str = "auto", prompt: int = PROMPT
) -> list[tuple[int, int]]:
    """(bytes held, bytes predicted) after a prompt, and after some decode steps."""
    predictor = MemoryPredictor(model_source, impl=impl, spec=CacheSpec(policy=policy))
    model = load_model(model_source, RunOptions(policy=policy), impl=impl)
    cache = model.new_cache(BATCH, prompt + LATE)
    tokens = torch.randint(150, (BATCH, prompt + LATE), generator=torch.Generator().manual_seed(0))
    model(tokens[:, :prompt], cache, last_only=True)
    found = [(cache.size_bytes, predictor.at(prompt, BATCH).kv_bytes)]
    for steps in range(1, LATE + 1):
        model(tokens[:, prompt + steps - 1 : prompt + steps], cache)
        if steps in (1, LATE):
            found.append((cache.size_bytes, predictor.at(prompt + steps, BATCH, steps=steps).kv_bytes))
    return found


@pytest.mark.parametrize("name", sorted(RUN.keys() - set(IN_POOL) - set(BY_HEAD)))
def test_bytes_held_match_the_prediction(name: str) -> None:
    assert [held - predicted for held, predicted in held_and_predicted(source(), RUN[name])] == [0, 0, 0]


def test_a_long_layer_gets_room_for_more_than_a_block() -> None:
    found = held_and_predicted(source(), "snapkv:budget=2112", prompt=2200)
    assert [held - predicted for held, predicted in found] == [0, 0, 0]
    assert found[1] == found[2], "the first step made room for all"


@pytest.mark.parametrize(
    "name, impl, kv",
    [
        ("snapkv", "auto", "kv-int8"),
        pytest.param("h2o", "auto", "kv-f16", marks=OTHERS),
        pytest.param("snapkv", "reference", "kv-int8", marks=OTHERS),
    ],
)
def test_in_other_formats(name: str, impl: str, kv: str) -> None:
    found = held_and_predicted(source(kv=kv), RUN[name], impl)
    assert [held - predicted for held, predicted in found] == [0, 0, 0]


@pytest.mark.parametrize(
    "name, kv",
    [
        ("h2o", "kv-kivi-2"),
        *(
            pytest.param(name, kv, marks=OTHERS)
            for name in sorted(RUN.keys() - {"full", "quest", "infllm", *BY_HEAD})
            for kv in ("kv-kivi-2", "kv-kivi-4", "kv-int4-kc")
            if (name, kv) != ("h2o", "kv-kivi-2")
        ),
    ],
)
def test_in_formats_of_groups(name: str, kv: str) -> None:
    """The budget is above a residual and a group, so that some of its tokens are encoded."""
    policy = RUN[name].replace(str(BUDGET), "190").replace(str(BUDGET - 4), "186")
    assert [held - predicted for held, predicted in held_and_predicted(source(kv=kv), policy)] == [0, 0, 0]


@pytest.mark.parametrize("name", [pytest.param("fastgen", marks=OTHERS), "adakv"])
def test_heads_of_groups_hold_no_more_than_predicted(name: str) -> None:
    policy = RUN[name].replace(str(BUDGET), "190")
    assert all(held <= predicted for held, predicted in held_and_predicted(source(kv="kv-kivi-4"), policy))


def test_a_budget_in_bytes_counts_the_floats_of_a_format_of_groups() -> None:
    config = MemoryPredictor(source()).config
    fmt = KV_FORMATS["kv-kivi-4"]
    budget = int(config.num_layers * fmt.size_bytes(200, config.num_kv_heads, config.head_dim))
    held, _ = held_and_predicted(source(kv="kv-kivi-4"), f"snapkv:budget={budget}B")[0]
    assert held == BATCH * budget


@pytest.mark.parametrize(
    "architecture, sizes, name",
    [
        ("gemma2", {"sliding_window": 40}, "pyramidkv"),
        pytest.param("gemma2", {"sliding_window": 40}, "scissorhands", marks=OTHERS),
        pytest.param("deepseek2", {"kv_lora_rank": 64, "head_dim": 16}, "tova", marks=OTHERS),
        ("deepseek2", {"kv_lora_rank": 64, "head_dim": 16}, "pyramidkv"),
    ],
)
def test_with_windows_and_with_latents(architecture: str, sizes: dict[str, int], name: str) -> None:
    found = held_and_predicted(source(architecture, **sizes), RUN[name])
    assert [held - predicted for held, predicted in found] == [0, 0, 0]


@pytest.mark.parametrize("name", BY_HEAD)
def test_heads_with_lengths_of_their_own_hold_no_more_than_predicted(name: str) -> None:
    model_source = source()
    config = MemoryPredictor(model_source).config
    block_bytes = BLOCK_TOKENS * 2 * config.head_dim * FLOAT_BYTES
    for held, predicted in held_and_predicted(model_source, RUN[name]):
        assert held <= predicted
        if name == "adakv":
            assert predicted - held <= BATCH * config.num_layers * config.num_kv_heads * block_bytes


@pytest.mark.parametrize("steps", [0, 1, 32, 500])
@pytest.mark.parametrize("name", sorted(RUN.keys() - set(IN_POOL) - {"fastgen"}))
def test_a_budget_is_exceeded_by_less_than_2_percent(name: str, steps: int) -> None:
    """Tokens that are generated count next to the budget of a policy that only evicts from prompts."""
    budget = 1024
    policy = f"sinks:4+{budget - 4}" if name == "sinks" else f"{name}:budget={budget}"
    predictor = MemoryPredictor(source(max_position_embeddings=16384), spec=CacheSpec(policy=policy))
    held = predictor.at(8000 + steps, steps=steps).kv_bytes
    plan = predictor.cache
    in_decode = not plan.kind.has_budget or plan.policy.in_decode
    allowed = budget if in_decode else budget + steps
    assert held <= 1.02 * allowed * predictor.at(8000).kv_bytes_per_token
