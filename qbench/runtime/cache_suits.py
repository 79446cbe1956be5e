"""Whether a source can have a cache: asked before any weight is read."""

from collections.abc import Mapping

from qbench.policies import CachePolicy
from qbench.run.cache_spec import DEFAULT_CACHE, DENSE, DYNAMIC, FULL, PAGED, CacheSpec
from qbench.run.choices import CPU, IN_TORCH, TRITON
from qbench.run.options import RunOptions
from qbench.runtime.caches.rules import Asked, check
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig
from quant.models.encoder_decoder import is_encoder_decoder
from quant.source import Source

LAYOUTS = (DYNAMIC, PAGED)
NO_OPTIONS: Mapping[str, bool] = {}


def check_cache_suits(source: Source, options: RunOptions) -> None:
    """raises InputError or NotImplementedError for a layout or a policy that the model or the device cannot have

    source   in the KV format of the options, as `open_subject` makes it
    """
    config = ModelConfig.of(source)
    scheme = KVScheme.of(source.config, config, source.spec)
    if options.device != CPU:
        check_device_cache(options.cache_spec, options.attention, options.device)
    attention = options.attention if options.device == CPU else None  # a device has its own rules
    check(Asked(config, scheme, options.cache_spec, attention))


def check_source(source: Source, spec: CacheSpec, attention: str | None = None) -> None:
    """`check` of a source, in its KV format, before it is read. raises InputError for an encoder-decoder, too"""
    if spec == DEFAULT_CACHE and attention is None:
        return
    if is_encoder_decoder(source.config):
        _check_encoder_decoder(source.spec, spec, attention)
        return
    config = ModelConfig.of(source)
    check(Asked(config, KVScheme.of(source.config, config, source.spec), spec, attention))


def _check_encoder_decoder(name: str, spec: CacheSpec, attention: str | None) -> None:
    """raises InputError for attention, a pattern or a policy that its decoder does not have"""
    if attention is not None:
        raise InputError(f"{name} is an encoder-decoder, which has one attention alone; got attention {attention}")
    if spec.prefill != DENSE:
        raise InputError(
            f"{name} is an encoder-decoder, whose encoder is not causal; got prefill {spec.prefill}, expected {DENSE}"
        )
    if spec.make_policy().retrieval is not None:
        raise InputError(f"{name} is an encoder-decoder; got policy {spec.policy}, expected {FULL}")


def check_device_cache(spec: CacheSpec, attention: str | None, device: str) -> None:
    """raises InputError or NotImplementedError for a layout or a policy that has no code on a device"""
    if spec.layout not in LAYOUTS:
        raise NotImplementedError(f"device {device}: got cache {spec}, expected {' or '.join(LAYOUTS)}")
    if spec.policy == FULL:
        return
    policy = spec.make_policy()
    why = why_not_on_device(policy)
    if why is not None:
        raise InputError(f"device {device}: policy {policy.name} {why}")
    if attention in IN_TORCH:
        raise InputError(f"policy {spec.policy} needs attention {TRITON} on device {device}; got {attention}")


def why_not_on_device(policy: CachePolicy) -> str | None:
    """The property of the policy that gpu_kernels lack; None: they run it"""
    if policy.needs_future:
        return "reads a text twice, which is done on the CPU alone; choose device cpu"
    if policy.retrieval:
        return "lets each query choose its pages, which is done on the CPU alone; choose device cpu, or snapkv"
    if policy.has_sinks:
        return "turns each query twice, by its places in the text and in the cache; choose device cpu, or a window"
    return None


def check_engine_source(source: Source, options: RunOptions, leaving: Mapping[str, bool] = NO_OPTIONS) -> None:
    """Check the cache policy, the prefill pattern and the KV format of a model.

    leaving  option by which pages leave the memory of an engine -> whether it is given
    raises   InputError if the engine cannot run them
    """
    config = ModelConfig.of(source)
    scheme = KVScheme.of(source.config, config, source.spec)
    check(Asked(config, scheme, options.cache_spec, options.attention, reads_once=True, in_engine=True))
    for option, is_given in leaving.items():
        if is_given and scheme is not None and scheme.format.token_group > 1:
            raise InputError(
                f"{scheme.format.name} encodes several tokens together, so its pages stay in the memory of one engine; "
                f"leave out {option}, or choose another KV format"
            )
