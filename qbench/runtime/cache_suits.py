"""Whether a source can have a cache: asked before any weight is read."""

from collections.abc import Mapping

from qbench.run.cache_spec import DEFAULT_CACHE, DENSE, FULL, CacheSpec
from qbench.run.choices import CPU
from qbench.run.options import RunOptions
from qbench.runtime.caches.rules import Asked, check
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig
from quant.models.encoder_decoder import is_encoder_decoder
from quant.source import Source

NO_OPTIONS: Mapping[str, bool] = {}


def check_cache_suits(source: Source, options: RunOptions) -> None:
    """raises InputError for a layout or a policy that the model cannot have

    source   in the KV format of the options, as `open_subject` makes it
    """
    config = ModelConfig.of(source)
    scheme = KVScheme.of(source.config, config, source.spec)
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
