"""Every format that keys and values may be kept in, by name."""

from collections.abc import Sequence

from quant.errors import InputError
from quant.kv.formats import KV_FORMATS, KVFormat
from quant.kv.scheme import KVScheme, calibrate_kv

__all__ = ["KV_FORMATS", "KVFormat", "KVScheme", "calibrate_kv", "get_kv_format"]


def get_kv_format(name: str, others: Sequence[str] = ()) -> KVFormat:
    """The format of this name, e.g. "kv-fp8".

    others   names that the caller knows too, for the message
    raises   InputError for an unknown name
    """
    if name not in KV_FORMATS:
        raise InputError(f"unknown KV format {name!r}; known are {', '.join((*others, *KV_FORMATS))}")
    return KV_FORMATS[name]
