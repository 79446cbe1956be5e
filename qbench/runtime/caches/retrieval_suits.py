"""Models and KV formats of which a query can read only some tokens."""

from qbench.cache_spec import FULL, CacheSpec
from qbench.policies.infllm import InfLLM
from qbench.policies.retrieval import RetrievalPolicy
from qbench.runtime.caches.sink_view import turns_with_text
from qbench.runtime.caches.storages import codecs_of
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig
from quant.models.encoder_decoder import is_encoder_decoder
from quant.models.online import KEYS
from quant.source import Source


def check_retrieval_suits(config: ModelConfig, scheme: KVScheme | None, spec: CacheSpec) -> None:
    """raises InputError for a model or a KV format that the policy cannot read in part"""
    policy = None if spec.policy == FULL else spec.make_policy()
    if not isinstance(policy, RetrievalPolicy):
        return
    who = config.architecture.name
    if config.mla is not None:
        raise InputError(f"policy {policy.name} reads keys of each head, but {who} keeps latents; use policy full")
    if any(config.attention_rule(layer).has_alibi for layer in range(config.num_layers)):
        raise InputError(f"{who} has ALiBi, which policy {policy.name} changes; use policy full")
    if scheme is not None and any(codec.token_group > 1 for codec in codecs_of(scheme)):
        raise InputError(
            f"{scheme.format.name} encodes several tokens together, of which policy {policy.name} reads only some; "
            "choose a format that encodes each token by itself, as kv-f16 or kv-int8"
        )
    if isinstance(policy, InfLLM):
        _check_rotates(config)


def _check_rotates(config: ModelConfig) -> None:
    """raises InputError if queries cannot meet distant keys by another rotation"""
    who = config.architecture.name
    if KEYS in config.online:
        raise InputError("keys are rotated online here, so policy infllm cannot turn them back; use policy quest")
    if not config.has_rope:
        raise InputError(f"{who} has no rotary positions, which policy infllm changes; use policy quest")
    if turns_with_text(config):
        raise InputError(
            f"rotations of {who} change in a long text, so policy infllm cannot turn keys back; use policy quest"
        )


def check_source_suits_retrieval(source: Source, spec: CacheSpec) -> None:
    """`check_retrieval_suits` of a source before it is read. raises InputError for an encoder-decoder, too"""
    if spec.policy == FULL or not isinstance(spec.make_policy(), RetrievalPolicy):
        return
    if is_encoder_decoder(source.config):
        raise InputError(f"{source.spec} is an encoder-decoder; got policy {spec.policy}, expected {FULL}")
    config = ModelConfig.of(source)
    check_retrieval_suits(config, KVScheme.of(source.config, config, source.spec), spec)
