"""The table of caches that a model can have: every reason at once, and the nearest cache that works."""

from dataclasses import replace

import pytest

from qbench.policies import registry
from qbench.policies.policy import CachePolicy
from qbench.run.cache_spec import CacheSpec
from qbench.run.choices import KERNEL, SDPA
from qbench.runtime.caches.rules import Asked, check, reasons
from quant.errors import InputError
from quant.kv import KVScheme, get_kv_format
from quant.models import ModelConfig
from tests.support.architectures import small_config
from tests.support.array_source import ArraySource


def asked(kind: str = "llama", kv: str | None = None, **how) -> Asked:
    config = ModelConfig.of(ArraySource(small_config(kind), {}))
    scheme = None if kv is None else KVScheme(get_kv_format(kv))
    spec = {name: how.pop(name) for name in ("policy", "prefill", "layout", "kv_ram") if name in how}
    return Asked(config, scheme, CacheSpec(**spec), **how)


def test_a_plain_cache_has_no_reason_against_it():
    assert reasons(asked()) == []
    check(asked(policy="snapkv:budget=128", in_engine=True, reads_once=True))


def test_a_single_reason_is_the_whole_message():
    with pytest.raises(InputError) as refusal:
        check(asked("bloom", policy="h2o:budget=64"))
    assert str(refusal.value) == (
        "BloomForCausalLM lowers scores by distance (ALiBi), which eviction changes; use policy full"
    )


def test_all_reasons_come_at_once_with_the_nearest_cache_that_works():
    with pytest.raises(InputError) as refusal:
        check(asked("bloom", attention=SDPA, policy="h2o:budget=64"))
    assert str(refusal.value) == (
        "BloomForCausalLM has ALiBi, which attention sdpa cannot compute; choose textbook; also: "
        "BloomForCausalLM lowers scores by distance (ALiBi), which eviction changes; use policy full; "
        "what works: policy full, no choice of attention"
    )


def test_a_change_that_removes_every_reason_is_the_nearest():
    with pytest.raises(InputError, match=r"what works: policy full$"):
        check(asked("deepseek2", policy="quest:budget=64", in_engine=True))


def test_a_text_that_passes_once_has_no_policy_that_needs_the_future():
    assert not reasons(asked(policy="oracle:budget=64"))
    assert "reads a text twice" in reasons(asked(policy="oracle:budget=64", reads_once=True))[0]


def test_tiers_need_keys_and_values_of_every_head():
    assert any("--kv-ram needs keys and values" in why for why in reasons(asked("deepseek2", kv_ram=0.5)))


def test_the_kernels_read_no_format_that_they_lack():
    its = asked(attention=KERNEL)
    assert reasons(its) == []
    odd = replace(its, config=replace(its.config, head_dim=its.config.head_dim + 2))
    assert "attention kernel does not read float32 with heads of" in reasons(odd)[0]


def test_a_policy_string_is_parsed_once(monkeypatch):
    registry.parse_policy.cache_clear()
    made: list[CachePolicy] = [CacheSpec(policy="h2o:budget=77").make_policy() for _ in range(3)]
    assert registry.parse_policy.cache_info().misses == 1
    assert all(one is made[0] for one in made)
