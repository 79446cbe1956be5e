"""How many tokens of a KV format with a residual are encoded, and the bytes of both kinds."""

import pytest

from quant.kv import KV_FORMATS
from quant.kv.formats import KVFormat
from quant.kv.ints import IntChannels, IntGroups

KIVI = KV_FORMATS["kv-kivi-2"]


def test_a_group_is_encoded_when_128_tokens_follow_it():
    assert [KIVI.num_encoded(n) for n in (0, 1, 128, 159, 160, 191, 192, 4096)] == [0, 0, 0, 0, 32, 32, 64, 3968]
    for num_tokens in range(1000):
        assert KIVI.num_encoded(num_tokens) % 32 == 0
        assert num_tokens < 160 or 128 <= num_tokens - KIVI.num_encoded(num_tokens) < 160


def test_without_a_residual_all_tokens_are_encoded():
    assert KV_FORMATS["kv-int4-kc"].num_encoded(45) == 45
    assert KV_FORMATS["kv-int4-kc"].uniform_runs(3, 500) == [(3, 500)]


@pytest.mark.parametrize("start, end", [(0, 159), (0, 160), (0, 400), (158, 160), (159, 160), (161, 400), (200, 201)])
def test_queries_of_a_run_see_the_same_tokens_encoded(start, end):
    runs = KIVI.uniform_runs(start, end)
    assert [token for run in runs for token in range(*run)] == list(range(start, end))
    encoded = [{KIVI.num_encoded(token + 1) for token in range(*run)} for run in runs]
    assert all(len(each) == 1 for each in encoded) and len(set.union(*encoded)) == len(runs)


def test_bits_of_a_number_by_hand():
    """Codes, and a scale and a zero point of 16 bits for 32 numbers; 128 to 159 tokens of 16 bits."""
    for bits, context in ((2, 160), (2, 4096), (2, 32768 + 31), (4, 4096)):
        fmt = KV_FORMATS[f"kv-kivi-{bits}"]
        floats = 128 + context % 32
        expected = ((context - floats) * (bits + 1) + floats * 16) / context
        assert fmt.size_bytes(context, 2, 64) * 8 / (context * 2 * 2 * 64) == expected
    assert KIVI.bytes_per_token(2, 64) * 8 / (2 * 2 * 64) == 3
    assert KIVI.size_bytes(100, 2, 64, value_dim=32) == 100 * 2 * (64 + 32) * 2


def test_another_residual():
    small = KVFormat("small", IntChannels(4, token_group=8), IntGroups(4, group=32), residual=16)
    assert [small.num_encoded(n) for n in (23, 24, 31, 32)] == [0, 8, 8, 16]
    assert small.uniform_runs(0, 40) == [(0, 23), (23, 31), (31, 39), (39, 40)]
