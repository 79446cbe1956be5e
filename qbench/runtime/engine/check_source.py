"""Check a model for the engine before any weight is read."""

from collections.abc import Mapping

from qbench.run.options import RunOptions
from qbench.runtime.caches.rules import Asked, check
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig
from quant.source import Source

NO_OPTIONS: Mapping[str, bool] = {}


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
