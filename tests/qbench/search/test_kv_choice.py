"""KV formats that a search may choose."""

import pytest

from qbench.search.kv_choice import AUTO, KVWanted, kv_schemes, kv_sizes
from qbench.sources import open_source
from quant.errors import InputError
from quant.kv.source import KVSource
from quant.models import ModelConfig


def test_all_formats_that_find_their_scales_by_themselves():
    source = open_source("ref:llama")
    sizes, config = kv_sizes(source, KVWanted(AUTO, 512)), ModelConfig.of(source)
    floats = config.num_layers * 512 * config.num_kv_heads * (config.head_dim + config.value_dim) * 4
    assert sizes["f32"] == floats == 2 * sizes["kv-f16"]
    assert {"kv-int8", "kv-fp8", "kv-int4", "kv-kivi-2"} < set(sizes) and not any("cal" in name for name in sizes)
    assert set(kv_schemes(sizes, config)) == set(sizes) - {"f32"}
    assert kv_sizes(source, KVWanted("kv-int8", 512, batch=3)) == {"kv-int8": 3 * sizes["kv-int8"]}


@pytest.mark.parametrize(
    ("text", "context", "says"),
    [
        ("kv-int5", 64, "unknown KV format 'kv-int5'; known are auto, f32, "),
        ("kv-fp8,kv-fp8-cal", 64, "kv-fp8-cal needs the ranges"),
        ("auto", 10**7, "a context of 10000000 tokens, but ref:llama holds"),
    ],
)
def test_refusals(text, context, says):
    with pytest.raises(InputError, match=says):
        kv_sizes(open_source("ref:llama"), KVWanted(text, context))


def test_a_model_that_names_its_kv_format():
    with pytest.raises(InputError, match="names a KV format already"):
        kv_sizes(KVSource(open_source("ref:llama"), "kv-int8"), KVWanted(AUTO, 64))
