"""Tables of attention by context: quality, speed and memory of one implementation and length are one row."""

import json

import pytest
from support.sample_records import make_record, write_records

from qbench.report import render_named
from quant.errors import InputError

DELTA = {"max_logit": 0.0312, "mean_kld": 2e-7, "max_kld": 3e-5, "same_top": 0.999, "num_tokens": 4092}


def cell(attention: str | None, depth: int, peak: int, deltas: dict[int, dict] | None = None, **changes) -> dict:
    """A case; `deltas` of the windows that were measured in it."""
    about = {"peak_rss_bytes": peak, "baseline_rss_bytes": 100_000_000, "pp_tok_s": 9000.0 - depth, "tg_tok_s": 50.0}
    if deltas:
        protocols = {f"windows-{tokens}": {"name": f"windows-{tokens}", "num_windows": 4} for tokens in deltas}
        found = {
            name: {"protocol": told, "attention_delta": delta}
            for (name, told), delta in zip(protocols.items(), deltas.values(), strict=True)
        }
        about |= {"protocols": found, "attention_delta": next(iter(deltas.values()))}
    record = make_record("bf16", **about)
    record["case"] |= {"kv_format": "kv-f16", "bench": {"pp": 64, "tg": 32, "depth": depth}, **changes}
    if attention is not None:
        record["case"]["attention"] = attention
    return record | {"key": f"{attention} {depth} {changes}"}


def rows(text: str) -> list[list[str]]:
    return [[part.strip() for part in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]


@pytest.fixture
def render(tmp_path):
    return lambda records: render_named("--attention-table", write_records(tmp_path / "records.jsonl", records))


def test_a_row_per_context_and_implementation(render):
    deltas = {1024: DELTA, 4096: DELTA | {"max_logit": 0.5}}
    records = [cell("kernel", 1024, 130_000_000, deltas), cell("kernel", 4096, 150_000_000)]
    records += [cell("textbook", 1024, 200_000_000), cell("textbook", 4096, 1_100_000_000)]
    heading, _, *found = rows(text := render(records))
    assert heading[:3] == ["tokens", "attention", "max abs delta logit"]
    assert heading[-2:] == ["peak RSS MB", "above the empty process MB"]
    assert [row[:6] for row in found] == [
        ["1024", "textbook", "0", "0", "0", "100"],
        ["1024", "kernel", "3.12e-02", "2.00e-07", "3.00e-05", "99.900"],
        ["4096", "textbook", "0", "0", "0", "100"],
        ["4096", "kernel", "5.00e-01", "2.00e-07", "3.00e-05", "99.900"],
    ]
    assert [row[-1] for row in found] == ["100.00", "30.00", "1000.00", "50.00"]
    assert [row[6].split()[0] for row in found] == ["7976", "7976", "4904", "4904"]
    assert "over 4 windows of each length; 2 threads" in text


def test_each_format_has_its_own_table(render):
    text = render([cell("sdpa", 0, 1, {64: DELTA}), cell("sdpa", 0, 1, kv_format="f32"), cell(None, 0, 1)])
    assert text.count("**Attention of ref:llama as bf16") == 2
    with pytest.raises(InputError, match="no measured case has chosen its attention"):
        render([cell(None, 0, 1)])


@pytest.mark.parametrize(
    "place, value",
    [
        (("machine", "features"), True),
        (("machine", "cores"), None),
        (("machine", "cores"), 10**400),
        (("case", "threads"), "many"),
        (("metrics", "protocols", "windows-1024", "protocol", "name"), {}),
        (("metrics", "protocols", "windows-1024", "protocol", "name"), "windows-" + "9" * 5000),
        (("metrics", "protocols", "windows-1024", "protocol", "name"), "windows-many"),
        (("metrics", "protocols", "windows-1024", "protocol", "num_windows"), "x"),
        (("metrics", "protocols", "windows-1024", "attention_delta", "mean_kld"), None),
        (("key",), {}),
    ],
    ids=str,
)
def test_a_hostile_record_ends_in_a_line_or_is_left_out(tmp_path, place, value):
    good = cell("kernel", 1024, 400_000_000, {1024: DELTA})
    record = json.loads(json.dumps(good))
    within = record
    for name in place[:-1]:
        within = within[name]
    within[place[-1]] = value
    path = write_records(tmp_path / "records.jsonl", [record, good | {"key": "good"}])
    try:
        assert "kernel" in render_named("--attention-table", path)
    except InputError as error:
        assert "lacks a value that this table shows" in str(error)
