"""KV formats that a search may choose, with the bytes of a cache in each."""

from collections.abc import Mapping
from dataclasses import dataclass

from qbench.runtime.kv_memory import CacheMemory
from quant.errors import InputError
from quant.kv import KV_FORMATS, KVScheme, get_kv_format
from quant.kv.scheme import CONFIG_KEY
from quant.kv_names import FLOAT32
from quant.models import ModelConfig
from quant.source import Source

AUTO = "auto"
METHOD = "kv"  # of an option that is a KV format


@dataclass(frozen=True, slots=True)
class KVWanted:
    """A cache that counts in the budget.

    text     AUTO for every format that the model can take, or names with commas, as the user wrote it
    context  tokens of a sequence
    batch    sequences
    """

    text: str
    context: int
    batch: int = 1


@dataclass(frozen=True, slots=True)
class KVCost:
    """A KV format of a file. loss: predicted KLD, nats"""

    format: str
    size_bytes: int
    loss: float

    @property
    def document(self) -> dict[str, str]:
        """The part of a recipe document that says so."""
        return {} if self.format == FLOAT32 else {"kv": self.format}


def kv_sizes(source: Source, wanted: KVWanted) -> dict[str, int]:
    """KV format -> bytes of the cache.

    raises   InputError for a context that the model does not hold, and a named format that it cannot take
    """
    config = ModelConfig.of(source)
    if wanted.context > config.max_positions:
        raise InputError(
            f"a context of {wanted.context} tokens, but {source.spec} holds {config.max_positions}; ask for fewer"
        )
    if CONFIG_KEY in source.config:
        raise InputError(f"{source.spec} names a KV format already; search from the model that it was made from")
    names = (FLOAT32, *KV_FORMATS) if wanted.text == AUTO else tuple(wanted.text.split(","))
    sizes = {}
    for name in names:
        try:
            memory = CacheMemory(config, scheme_of(name, config))
        except InputError:
            if wanted.text == AUTO:
                continue
            raise
        sizes[name] = memory.size_bytes(wanted.context, wanted.batch)
    return sizes


def scheme_of(name: str, config: ModelConfig) -> KVScheme | None:
    """None for float32. raises InputError for an unknown name, heads of another size, and calibrated scales"""
    if name == FLOAT32:
        return None
    fmt = get_kv_format(name, others=(AUTO, FLOAT32))
    if fmt.calibrated:
        raise InputError(f"{name} needs the ranges of keys and values, which a search does not collect; take kv-fp8")
    fmt.check(config.head_dim)
    return KVScheme(fmt)


def kv_schemes(names: Mapping[str, int], config: ModelConfig) -> dict[str, KVScheme]:
    """The formats to measure: float32 loses nothing."""
    found = {name: scheme_of(name, config) for name in names}
    return {name: scheme for name, scheme in found.items() if scheme is not None}
