"""Whether a source can have a cache: asked before any weight is read."""

from qbench.run.cache_spec import DEFAULT_CACHE, DENSE, FULL, CacheSpec
from qbench.run.choices import CPU
from qbench.run.options import RunOptions
from qbench.runtime.caches.rules import Asked, check
from qbench.runtime.device.suits import check_device_cache
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig
from quant.models.encoder_decoder import is_encoder_decoder
from quant.source import Source


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
