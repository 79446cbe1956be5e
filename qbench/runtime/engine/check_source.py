"""Check a model for the engine before any weight is read."""

from qbench.run_options import RunOptions
from qbench.runtime.caches.model_policy import check_engine_policy
from qbench.runtime.caches.pattern_view import check_pattern_suits
from quant.kv import KVScheme
from quant.models import ModelConfig
from quant.source import Source


def check_engine_source(source: Source, options: RunOptions) -> None:
    """raises InputError if the engine cannot run the cache policy or prefill pattern of `options` on this model"""
    config = ModelConfig.of(source)
    scheme = KVScheme.of(source.config, config, source.spec)
    check_engine_policy(config, scheme, options.cache_spec.make_policy())
    check_pattern_suits(config, scheme, options.cache_spec)
