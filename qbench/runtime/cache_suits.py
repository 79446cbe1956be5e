"""Whether a model can have a cache: asked before any weight is read."""

from qbench.options.choices import CPU
from qbench.options.run_options import RunOptions
from qbench.runtime.caches.rules import Asked, check
from qbench.runtime.device.suits import check_device_cache
from quant.kv import KVScheme
from quant.models import ModelConfig
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
