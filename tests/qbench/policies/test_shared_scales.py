"""kv-fp8-tensor, whose heads share a scale, under policies that keep other tokens in each head."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.caches import attended, policy_cache
from support.close import assert_close

from qbench.policies import parse_policy, policy_names
from qbench.run.cache_spec import CacheSpec
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.caches.policy.model_policy import scheme_under
from qbench.runtime.caches.storage.storages import make_storage
from qbench.runtime.memory import MemoryPredictor
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY
from quant.models import ModelConfig
from quant.present import present

SCHEME = KVScheme(KV_FORMATS["kv-fp8-tensor"])
CONFIG = small_config("llama", head_dim=32, max_position_embeddings=1024)
OWN_SCALE = {"adakv": "adakv:budget=600", "fastgen": "fastgen:target=1"}
OTHERS = pytest.mark.exhaustive("some policies of each kind are in every run")
NAMES = [name for name in policy_names() if name not in ("window", "sinks", "full", "oracle", "quest", "infllm")]


def model_of(kv: str, policy: str, impl: str = "reference"):
    entry = {CONFIG_KEY: KVScheme(KV_FORMATS[kv]).config_entry()}
    return load_model(ArraySource(CONFIG | entry, random_weights(CONFIG)), RunOptions(policy=policy), impl=impl)


def test_each_head_reads_its_tokens_by_the_scale_of_all_heads() -> None:
    config = ModelConfig.of(ArraySource(CONFIG, {}))
    scheme = scheme_under(parse_policy("random:20"), SCHEME)
    storages = [make_storage(config, scheme, layer, 1, 16, in_kernels=True, evicts=True) for layer in range(2)]
    cache = policy_cache(config, "random:20", storages=storages)
    make = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, heads, 60, 32, generator=make) for heads in (4, 2, 2))
    k[:, 1] *= 50  # by a scale of its own, the first head would be finer
    attended(cache, q, k, v, (40, *(1,) * 20))
    assert len({tuple(its) for its in cache.held_positions(0)[0]}) == 2, "heads keep other tokens"

    factor = k.double().abs().amax((1, 3)) / 448  # [1, T]
    total = int(cache.tables[0].held[0])
    keys, _ = cache.memories[0].read(cache.evictor.past_of(0, total))
    for g in range(2):
        positions = cache.tables[0].positions[0, g, :total]
        scale = factor[0, positions, None]
        codes = (k[0, g, positions].double() / scale).float().to(torch.float8_e4m3fn).double()
        assert_close(keys[0, g].double(), codes * scale, atol=2.0**-23 * 2**8)


@pytest.mark.parametrize("name", [name if name == "h2o" else pytest.param(name, marks=OTHERS) for name in NAMES])
def test_a_budget_above_the_context_changes_no_bit(name: str) -> None:
    """If heads have lengths of their own, each finds its scale alone, as in kv-fp8."""
    model = model_of("kv-fp8-tensor", OWN_SCALE.get(name, f"{name}:budget=600"))
    full = model_of("kv-fp8" if name in OWN_SCALE else "kv-fp8-tensor", "full")
    tokens = torch.randint(150, (2, 90), generator=torch.Generator().manual_seed(1))
    one, other = model.new_cache(2), full.new_cache(2)
    for part in tokens.split((40, 1, 1, 30, 18), 1):
        assert torch.equal(model(part, one), full(part, other))


@pytest.mark.parametrize("policy", ["snapkv:70", "tova:70"])
def test_bytes_held_match_the_prediction(policy: str) -> None:
    entry = {CONFIG_KEY: SCHEME.config_entry()}
    predictor = MemoryPredictor(ArraySource(CONFIG | entry, random_weights(CONFIG)), spec=CacheSpec(policy=policy))
    model = model_of("kv-fp8-tensor", policy, "auto")
    cache = model.new_cache(1)
    model(torch.zeros(1, 200, dtype=torch.int64), cache)
    assert cache.size_bytes == predictor.at(200).kv_bytes


def test_heads_with_the_same_tokens_keep_one_scale() -> None:
    for policy in ("full", "window:9", "tova:9"):
        assert scheme_under(parse_policy(policy), SCHEME) is SCHEME
    spread = present(scheme_under(parse_policy("h2o:9"), SCHEME)).format
    assert spread.bytes_per_token(2, 32) == KV_FORMATS["kv-fp8"].bytes_per_token(2, 32)
