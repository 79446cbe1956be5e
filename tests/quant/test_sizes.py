from support.memory_source import MemorySource

from quant.job import make_job
from quant.quantize import QuantizedSource
from quant.recipes import get_recipe
from quant.sizes import size_summary


def test_bits_per_weight_by_hand():
    source = QuantizedSource(make_job(MemorySource(num_hidden_layers=1), get_recipe("rtn-w4g128")))
    summary = size_summary(source.tensors)
    linears = 2 * 128 * 128 + 2 * 64 * 128 + 3 * 256 * 128
    floats = 2 * 320 * 128 + 3 * 128
    assert summary.num_weights == linears + floats
    assert summary.size_bytes == linears * 4.125 / 8 + floats * 2
    assert summary.bits_per_weight == (linears * 4.125 + floats * 16) / (linears + floats)
    assert summary.bits_per_weight_by_part == {"embedding": 16, "head": 16, "linears": 4 + 16 / 128, "vectors": 16}


def test_a_tied_head_has_no_bits():
    assert size_summary(MemorySource(tie_word_embeddings=True).tensors).bits_per_weight_by_part["head"] is None
