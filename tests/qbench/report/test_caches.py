"""One table of kinds of caches: the figures of one cache in several records are one row."""

import pytest
from support.sample_records import failed_record, make_record, write_records

from qbench.report import render_named, render_report
from quant.errors import InputError

BINS = [
    {"low": 1, "high": 64, "mean": 1e-6, "count": 63},
    {"low": 64, "high": 128, "mean": 1e-4, "count": 64},
    {"low": 128, "high": 256, "mean": 4e-4, "count": 128},
    {"low": 256, "high": 512, "mean": 2e-3, "count": 256},
]
RECALL = {"ref_recall": {"metric": "acc", "value": 0.75}}


def cell(kept: dict[str, str], kv_format: str, depth: int, model: str = "ref:llama", **quality) -> dict:
    """A case; with its quality if that was measured in it."""
    metrics = {"kv_bytes_held": 1_500_000 + depth, "kld_by_position": BINS, "tasks": RECALL} | quality
    if not quality.get("judged", True):
        metrics |= {"kld": None, "same_top": None, "kld_by_position": None, "tasks": None}
    record = make_record("bf16", model=model, pp_tok_s=2000.0 + depth, tg_tok_s=50.0, **metrics)
    record["case"] |= {"kv_format": kv_format, "bench": {"pp": 64, "tg": 32, "depth": depth}}
    record["case"] |= kept
    return record | {"key": f"{model} {kept} {kv_format} {depth}"}


def table(text: str) -> list[dict[str, str]]:
    heading, _, *rows = [line for line in text.splitlines() if line.startswith("|")]
    names, *cells = ([part.strip() for part in line.split("|")[1:-1]] for line in (heading, *rows))
    return [dict(zip(names, line, strict=True)) for line in cells]


@pytest.fixture
def caches(tmp_path):
    return lambda records: render_named("--cache-table", write_records(tmp_path / "records.jsonl", records))


def test_depths_and_quality_are_one_row_and_models_one_table(caches):
    rows = [cell({}, "f32", 0), cell({}, "f32", 896, judged=False), cell({"policy": "window:64"}, "kv-int8", 896)]
    rows.append(cell({"cache": "paged"}, "kv-int8", 0, model="ref:mla-moe", judged=False))
    first, second, third = table(caches(rows))
    assert [(row["model"], row["cache"], row["policy"], row["KV"]) for row in (first, second, third)] == [
        ("ref:llama", "dynamic", "full", "f32"),
        ("ref:llama", "dynamic", "window:64", "kv-int8"),
        ("ref:mla-moe", "paged", "full", "kv-int8"),
    ]
    assert first["mean KLD [95 %]"] == "9.10e-06 [8.19e-06, 1.01e-05]" and first["same top %"] == "99.92"
    by_position = [first[name] for name in ("KLD to 64", "KLD 64 to 256", "KLD from 256")]
    assert by_position == ["1.00e-06", "3.00e-04", "2.00e-03"]  # 64 tokens of 1e-4 and 128 of 4e-4
    assert first["ref_recall %"] == "75.00"
    assert first["pp64 tok/s [95 %]"] == "2000" and first["pp64@896 tok/s [95 %]"] == "2896"
    assert first["tg32 tok/s [95 %]"] == "50.0"
    assert (first["cache MB"], first["cache MB@896"]) == ("1.50", "1.50")
    assert second["pp64 tok/s [95 %]"] == "n/a" and third["mean KLD [95 %]"] == "n/a"


def test_each_machine_and_number_of_threads_has_its_own_table(caches):
    other = cell({}, "kv-f16", 0)
    other["case"]["threads"] = 1
    text = caches([cell({}, "f32", 0), other | {"key": "other"}])
    assert text.count("**Caches on Some Processor**") == 2 and "1 thread of 2 cores" in text


def test_a_failed_case_has_no_row_and_is_no_error(caches):
    failed = failed_record("bf16", "killed") | {"key": "failed"}
    assert len(table(caches([cell({}, "f32", 0), failed]))) == 1
    with pytest.raises(InputError, match="no measured case"):
        caches([failed])


def test_the_usual_tables_are_as_they_were(tmp_path):
    path = write_records(tmp_path / "records.jsonl", [cell({}, "f32", 0)])
    assert "KLD from 256" not in render_report(path, "md")
