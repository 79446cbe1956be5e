"""The oracle against a loop that adds up the attention of later queries, and against policies without the future."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.slow_policy import slow_policy

from qbench.policies import Budget
from qbench.policies.oracle import Oracle, Recorder
from qbench.reference.corpus import heldout_text
from qbench.run.options import RunOptions
from qbench.runtime import Tokenizer, load_model
from qbench.runtime.caches.places.places import OwnPages
from qbench.runtime.caches.policy.policy_cache import PolicyCache
from qbench.runtime.caches.storage.storages import make_storage
from qbench.sources import open_source
from quant.errors import InputError
from quant.models import ModelConfig
from quant.present import present

CONFIG = ModelConfig.of(ArraySource(small_config("llama", head_dim=32), {}))
HEADS_PER_KV = CONFIG.num_heads // CONFIG.num_kv_heads
PASSES = (14, 9, 9, 9)
BUDGET = 6


def attended(policy, q, k, v) -> PolicyCache:
    """A cache after all passes of layer 0."""
    storages = [make_storage(CONFIG, None, layer, 1, 16, in_kernels=False) for layer in range(CONFIG.num_layers)]
    cache, start = PolicyCache(CONFIG, OwnPages(storages, 1024, is_tight=True), policy), 0
    for count in PASSES:
        some = slice(start, start + count)
        step = cache.begin(torch.zeros(1, count, dtype=torch.int64))
        cache.attend(0, q[:, :, some], k[:, :, some], v[:, :, some], step.positions)
        cache.advance(count)
        start += count
    return cache


def test_the_oracle_keeps_the_tokens_with_most_later_attention():
    make = torch.Generator().manual_seed(3)
    counts = (CONFIG.num_heads, CONFIG.num_kv_heads, CONFIG.num_kv_heads)
    q, k, v = (torch.randn(1, count, sum(PASSES), CONFIG.head_dim, generator=make) * 2 for count in counts)
    recorder = Recorder()
    scale = attended(recorder, q, k, v).rules[0].scale
    cache = attended(Oracle(budget=Budget(BUDGET)).informed(recorder), q, k, v)
    for g in range(CONFIG.num_kv_heads):
        group = q[0, g * HEADS_PER_KV : (g + 1) * HEADS_PER_KV].double()  # [H / G, T, D]
        scores = scale * group @ k[0, g].double().T  # [H / G, T, T]
        weights = scores.masked_fill(torch.ones_like(scores[0]).triu(1).bool(), -torch.inf).softmax(-1).sum(0)  # [T, T]

        def choose(held, observed, seen, prompt, is_prefill, weights=weights):
            future = weights[seen:].sum(0)
            best = sorted(held, key=lambda s: -future[s].item())[:BUDGET]
            return held[:BUDGET] if seen == sum(PASSES) else best  # after the last pass all scores are 0

        arrays = (x.double().numpy() for x in (group, k[0, g], v[0, g]))
        _, positions = slow_policy(*arrays, PASSES, scale, choose)
        assert cache.held_positions(0)[0][g] == positions


@pytest.fixture(scope="module")
def text():
    source = open_source("ref:llama")
    tokens = Tokenizer(present(source.tokenizer)).encode(heldout_text("recall", 6000))[:512]
    return source, torch.tensor(tokens)[None]


def logits(source, tokens, policy: str) -> torch.Tensor:
    return load_model(source, RunOptions(policy=policy, prefill_chunk=64))(tokens).log_softmax(-1)


def test_it_is_nearer_to_the_full_cache_than_policies_that_do_not_know_the_future(text):
    full = logits(*text, "full")
    kld = {
        name: (full.exp() * (full - logits(*text, f"{name}:budget=32"))).sum(-1).mean().item()
        for name in ("oracle", "h2o", "knorm", "recent", "random")
    }
    assert min(kld, key=lambda name: kld[name]) == "oracle"
    assert kld["oracle"] < 0.5 * min(value for name, value in kld.items() if name != "oracle"), kld


def test_a_budget_above_the_text_changes_nothing(text):
    source, tokens = text
    assert torch.equal(logits(source, tokens, "oracle:512"), logits(source, tokens, "h2o:512"))


def test_the_oracle_is_refused_if_tokens_are_generated():
    config = small_config("llama")
    model = load_model(ArraySource(config, random_weights(config)), RunOptions(policy="oracle:16"))
    with pytest.raises(InputError, match="oracle reads a text twice"):
        model.new_cache(1)
