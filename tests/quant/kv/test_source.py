"""A model read with another KV format than it names."""

import pytest
from support.memory_source import MemorySource

from quant.errors import InputError
from quant.kv.scheme import CONFIG_KEY
from quant.kv.source import KVSource


def test_a_format_replaces_the_format_of_the_model():
    coded = KVSource(MemorySource(), "kv-int8")
    assert coded.config == MemorySource().config | {CONFIG_KEY: {"format": "kv-int8"}}
    assert KVSource(coded, "kv-fp8").config[CONFIG_KEY] == {"format": "kv-fp8"}


def test_f32_leaves_no_format():
    assert KVSource(KVSource(MemorySource(), "kv-int8"), "f32").config == MemorySource().config
    assert KVSource(MemorySource(), "f32").config == MemorySource().config


@pytest.mark.parametrize(
    "name, message",
    [
        ("kv-int9", "unknown KV format 'kv-int9'; known are f32, kv-fp8"),
        ("f16", "unknown KV format 'f16'"),
        ("kv-fp8-cal", "kv-fp8-cal needs the ranges of keys and values"),
    ],
)
def test_bad_names(name, message):
    with pytest.raises(InputError, match=message):
        KVSource(MemorySource(), name)
