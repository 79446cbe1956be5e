import pytest
from support.sample_records import make_record

from qbench.comparison.rows import pair_rows
from qbench.measure.records.record import Record
from quant.errors import InputError


def row(recipe: str, **case):
    record = make_record(recipe)
    return Record.from_json(record | {"case": record["case"] | case, "key": f"{record['key']}{case}"})


def paired(a, b, named):
    pairs, _ = pair_rows(a, b, named)
    return [(x.key, y.key) for x, y in pairs]


def test_one_row_per_side_always_pairs():
    a, b = row("bf16"), row("q4_0", threads=1, model="other")
    assert paired([a], [b], []) == [(a.key, b.key)]


def test_rows_pair_if_everything_else_is_equal():
    a = [row("bf16", threads=threads) for threads in (1, 2)]
    b = [row("q4_0", threads=threads) for threads in (2, 1)]
    assert paired(a, b, ["recipe"]) == [(a[1].key, b[0].key), (a[0].key, b[1].key)]


def test_a_baseline_is_not_compared_with_itself():
    base, rest = row("bf16"), [row("bf16"), row("q4_0"), row("q8_0")]
    assert [y for _, y in paired([base], rest, ["recipe"])] == [rest[1].key, rest[2].key]


def test_rows_without_a_partner_are_reported():
    b = [row("bf16"), row("q4_0"), row("q8_0", threads=1)]
    pairs, alone = pair_rows([row("bf16")], b, ["recipe"])
    assert ([y.key for _, y in pairs], alone) == ([b[1].key], [b[2]])


def test_each_row_pairs_with_the_same_cache():
    a = [row("bf16", kv_format="f32"), row("bf16", kv_format="kv-int8")]
    b = [row("q4_0", kv_format="kv-int8"), row("q8_0", kv_format="f32")]
    assert paired(a, b, ["recipe"]) == [(a[1].key, b[0].key), (a[0].key, b[1].key)]


def test_a_key_within_a_section():
    a = [row("bf16", bench={"pp": 512, "tg": 64}), row("q4_0", bench={"pp": 512, "tg": 64})]
    b = [row("bf16", bench={"pp": 256, "tg": 64}), row("q4_0", bench={"pp": 256, "tg": 64})]
    assert len(paired(a, b, ["bench.pp"])) == 2


def test_rows_without_a_pair_name_their_difference():
    with pytest.raises(InputError, match="threads: 2 and 1"):
        pair_rows([row("bf16")], [row("q4_0", threads=1), row("q8_0", threads=1)], ["recipe"])


def test_several_matching_rows_are_reported():
    a = [row("bf16"), row("q8_0")]
    with pytest.raises(InputError, match="2 rows of A fit one of B; they differ in"):
        pair_rows(a, [row("q4_0"), row("q6_k")], ["recipe"])
