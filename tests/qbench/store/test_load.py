import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.documents import append_record, latest_records, read_files
from support.sample_records import failed_record, make_record, sweep_records, write_records

from qbench.measure.records import record
from qbench.report import render_report
from qbench.store import load_records, load_with_others, measured_keys, query
from qbench.store.columns import COLUMNS
from quant.errors import InputError

# The table of a sweep's records made the slow, obvious way: each record a dictionary, each column by hand.

STATISTICS = ("mean", "median", "p90", "p99", "p999", "max")
OF_METRICS = (
    *("bits_per_weight", "size_bytes", "artifact", "perplexity", "num_tokens", "non_finite", "same_top"),
    *("pp_tok_s", "tg_tok_s", "ttft_ms", "tpot_ms", "peak_rss_bytes", "baseline_rss_bytes", "kv_bytes_per_token"),
    *("quantize_seconds", "quantize_peak_rss_bytes", "seconds", "isa"),
)
OF_CASE = ("model", "recipe", "kv_format", "device", "fingerprint", "threads", "context", "batch")
DEFAULTS = {"cache": "dynamic", "policy": "full", "compute": "fast"}
OF_RECORD = ("status", "error", "commit", "dirty", "code", "versions", "time", "key")


def latest_rows(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A flat row for the latest record of each case and machine, in the order in which they first came."""
    cases = list(dict.fromkeys((record["key"], record["machine"]["id"]) for record in records))
    by_time = sorted(records, key=lambda record: record["time"])
    latest = {case: None for case in cases} | {(record["key"], record["machine"]["id"]): record for record in by_time}
    return [flatten(record) for record in latest.values() if "kind" not in record["case"]]


def flatten(record: dict[str, Any]) -> dict[str, Any]:
    case, metrics, machine = record["case"], record["metrics"] or {}, record["machine"]
    bench, protocol = case.get("bench") or {}, metrics.get("protocol") or {}
    row = {name: metrics.get(name) for name in OF_METRICS}
    row |= {name: case.get(name) for name in OF_CASE}
    row |= {name: bench.get(name) for name in ("pp", "tg", "depth")}
    row |= {name: record.get(name) for name in OF_RECORD}
    row |= {f"kld_{name}": (metrics.get("kld") or {}).get(name) for name in STATISTICS}
    for name in ("perplexity", "kld"):
        row[f"{name}_low"], row[f"{name}_high"] = metrics.get(f"{name}_interval") or (None, None)
    for phase in ("pp", "tg"):
        spread = (metrics.get("spread") or {}).get(f"{phase}_tok_s") or {}
        row |= {f"{phase}_min": spread.get("min"), f"{phase}_max": spread.get("max")}
        row[f"roofline_{phase}"] = None if counts_all_tokens(record) else share_of(record, phase)
    row |= {name: case.get(name, default) for name, default in DEFAULTS.items()}
    return row | {
        "predicted_bytes": (metrics.get("predicted_bytes") or {}).get("total"),
        "load_average": (metrics.get("load_average") or {}).get("before", [None])[0],
        "impls": ", ".join(metrics.get("impls") or {}) or None,
        "protocol": protocol.get("name"),
        "protocol_hash": protocol.get("hash"),
        "machine": machine["id"],
        "cpu": machine["cpu"],
        "cores": machine["cores"],
        "shared": shared(record),
    }


def share_of(record: dict[str, Any], phase: str) -> float | None:
    """None above all, and of a decode step whose bytes the processor's cache holds."""
    case, metrics = record["case"], record["metrics"] or {}
    bound = metrics.get("roofline") or {}
    share, read = bound.get(phase), bound.get("tg_bytes")
    if share is None or share > 1.005:
        return None
    may_fit = phase == "tg" and read is not None and case.get("memory") is None and case.get("device") == "cpu"
    cache = (metrics.get("machine_peaks") or {}).get("cache_bytes")
    return None if may_fit and sum(read.values()) <= (2**30 if cache is None else cache) else share


def counts_all_tokens(record: dict[str, Any]) -> bool:
    """Whether the bound of a row under a policy cannot hold: more bytes than the cache, or a speed beyond it."""
    case, metrics = record["case"], record["metrics"] or {}
    bound, held = metrics.get("roofline") or {}, metrics.get("kv_bytes_held")
    read = (bound.get("tg_bytes") or {}).get("kv_read")
    too_many = case.get("kv_ram") is None and None not in (read, held) and read > held
    return case.get("policy", "full") != "full" and (too_many or max(bound.get(p) or 0 for p in ("pp", "tg")) > 1)


def shared(record: dict[str, Any]) -> str:
    """Common values of rows in one table, without the protocol."""
    of_recipe = ("recipe", "recipe_sha256", "kv_format", "cache", "policy")
    settings = {name: value for name, value in record["case"].items() if name not in of_recipe}
    return json.dumps([settings, record["machine"]["id"]], sort_keys=True)


RESULTS = Path(__file__).parents[3] / "results"
SCHEMA_1 = Path(__file__).parents[1] / "measure" / "records" / "schema_1.jsonl"


def none_of(value):
    return None if not isinstance(value, (dict, list)) and pd.isna(value) else value


def assert_is_table_of(frame: pd.DataFrame, records: list[dict]) -> None:
    """Every value as the slow way has it, and rows in one group if they share everything."""
    expected = latest_rows(records)
    by_case = {(row["key"], row["machine"]): row for row in expected}
    rows = frame.to_dict("records")
    assert len(rows) == len(expected)
    for row in rows:
        ref = by_case[row["key"], row["machine"]]
        found = {name: none_of(row[name]) for name in COLUMNS if name in ref}
        assert found == {name: ref[name] for name in found}
    for ref in expected:
        same = {row["group"] for row in rows if by_case[row["key"], row["machine"]]["shared"] == ref["shared"]}
        hashes = {row["protocol_hash"] for row in expected if row["shared"] == ref["shared"]} - {None}
        assert len(same) == max(1, len(hashes))


@pytest.mark.parametrize("path", [RESULTS, SCHEMA_1], ids=["results", "schema 1"])
def test_the_table_matches_the_slow_way(path):
    assert_is_table_of(load_records(path), list(read_files(path)))


def test_every_column_of_a_row_that_has_them_all(tmp_path):
    tasks = {
        "blimp": {
            "metric": "acc",
            "value": 0.75,
            "error": 0.1,
            "interval": [0.3, 0.95],
            "num_items": 4,
            "correct": "1101",
        }
    }
    protocols = {"gptq-2048": {"perplexity": 6.5, "perplexity_interval": [6.0, 7.0], "protocol": {"hash": "beef"}}}
    whole = make_record("q8_0", tasks=tasks, protocols=protocols) | {"dirty": True}
    bare = make_record("q4_0") | {"metrics": {}}
    path = write_records(tmp_path / "r.jsonl", [whole, bare, failed_record("q6_k", "it broke")])
    frame = load_records(path).set_index("recipe")
    assert_is_table_of(load_records(path), [whole, bare, failed_record("q6_k", "it broke")])
    shown = {name: value for name, value in tasks["blimp"].items() if name != "correct"}
    assert frame.loc["q8_0", "tasks"] == {"blimp": shown | {"protocol_hash": None}}
    assert frame.loc["q8_0", "protocols"] == protocols
    assert frame["tasks"].notna().tolist() == [True, False, False]
    assert frame["suite"].unique().tolist() == [tmp_path.name]


def test_a_later_row_replaces_and_keeps_its_place(tmp_path):
    first, second = sweep_records()[:2]
    later = make_record(first["case"]["recipe"], perplexity=9.0)
    a = write_records(tmp_path / "a.jsonl", [first, second])
    b = write_records(tmp_path / "b.jsonl", [later])
    assert load_records([a, b])["perplexity"].tolist() == [9.0, second["metrics"]["perplexity"]]
    assert load_records([b, a])["perplexity"].tolist() == [first["metrics"]["perplexity"], 6.132]
    found = latest_records([a, b])
    assert [row["metrics"]["perplexity"] for row in found.values()] == [9.0, 6.132]


def test_an_older_row_never_replaces_a_newer_one_in_any_order_of_files(tmp_path):
    old, new = (make_record("q8_0", perplexity=9.0 - day) | {"time": f"2026-01-0{day}T00:00:00"} for day in (1, 2))
    a, b = write_records(tmp_path / "a.jsonl", [new]), write_records(tmp_path / "b.jsonl", [old])
    for files in ([a, b], [b, a], tmp_path):
        assert load_records(files)["perplexity"].tolist() == [7.0]
        assert [row["metrics"]["perplexity"] for row in latest_records(files).values()] == [7.0]
        assert query("select perplexity from results", files).rows == [(7.0,)]


def test_a_row_replaces_an_older_one_with_times_in_any_format(tmp_path):
    times = "2026-01-01T09:00:00+09:00", "2026-01-01T00:00:01Z"
    rows = [make_record("q8_0", perplexity=9.0 - place) | {"time": time} for place, time in enumerate(times)]
    write_records(tmp_path / "r.jsonl", rows[::-1])
    assert load_records(tmp_path)["perplexity"].tolist() == [8.0]
    assert query("select perplexity, time from results", tmp_path).rows == [(8.0, "2026-01-01T00:00:01+00:00")]


def test_the_latest_row_of_kernels_counts_too(tmp_path):
    (row,) = (row for row in map(json.loads, SCHEMA_1.read_text().splitlines()) if row["case"].get("kind") == "kernel")
    later = row | {"time": "2099" + row["time"][4:], "machine": row["machine"] | {"cpu": "later"}}
    write_records(tmp_path / "r.jsonl", [later, row])
    assert query("select cpu from kernels", tmp_path).rows == [("later",)]


BAD_LINES = (b"null", b"[1]", b'{"a": 1}', b"\xff\xfe", b'{"schema_version": 2, "key": "torn', b"\n \n")


@pytest.mark.parametrize("line", BAD_LINES, ids=repr)
def test_a_line_that_is_no_record_is_named_and_costs_no_row(tmp_path, capsys, line):
    rows = sweep_records()
    path = write_records(tmp_path / "r.jsonl", rows[:3])
    with open(path, "ab") as file:
        file.write(line + b"\n")
    for row in rows[3:]:
        append_record(path, row)
    assert_is_table_of(load_records(path), rows)
    assert ("r.jsonl:4: skipped" in capsys.readouterr().err) == bool(line.strip())


NO_RECORDS = (
    *({"key": None}, {"status": None}, {"status": "fine"}, {"case": 7}, {"machine": {}}, {"time": None}, {"time": 5}),
    *({"time": "yesterday"}, {"metrics": None}, {"metrics": {"perplexity": "abc"}}),
    *({"metrics": {"perplexity": "7.5"}}, {"metrics": {"tg_tok_s": True}}, {"metrics": {"size_bytes": [1]}}),
    *({"case": {"recipe": "q8_0"}}, {"case": {"model": "m"}}, {"case": {"model": 3, "recipe": "q8_0"}}),
)


@pytest.mark.parametrize("change", NO_RECORDS, ids=repr)
def test_both_ways_of_reading_agree_on_records(tmp_path, capsys, change):
    path = write_records(tmp_path / "r.jsonl", [make_record("q8_0") | change, make_record("bf16")])
    assert load_records(path)["recipe"].tolist() == ["bf16"] and len(list(read_files(path))) == 1
    assert capsys.readouterr().err.count("r.jsonl:1: skipped") == 2


@pytest.mark.parametrize("name", ["key", "status", "time", "case", "metrics", "machine", "schema_version"])
def test_a_line_that_lacks_a_part_is_no_record(tmp_path, capsys, name):
    row = make_record("q8_0")
    del row[name]
    path = write_records(tmp_path / "r.jsonl", [row, make_record("bf16")])
    assert load_records(path)["recipe"].tolist() == ["bf16"] and len(list(read_files(path))) == 1
    assert query("select recipe from records", path).rows == [("bf16",)]
    assert measured_keys(path, {"a1b2c3"}, "c0de") == {make_record("bf16")["key"]}


def test_numbers_keep_their_value_in_either_notation(tmp_path):
    row = make_record("q8_0", perplexity=7, size_bytes=2**40, same_top=1e-3, tg_tok_s=None)
    (read,) = load_records(write_records(tmp_path / "r.jsonl", [row])).to_dict("records")
    assert (read["perplexity"], read["size_bytes"], read["same_top"]) == (7.0, 2**40, 1e-3)
    assert pd.isna(read["tg_tok_s"])


def test_a_newer_schema_is_refused(tmp_path):
    path = write_records(tmp_path / "r.jsonl", [make_record("q8_0"), make_record("bf16") | {"schema_version": 5}])
    with pytest.raises(InputError, match=r"r.jsonl:2: record of schema 5, this qbench knows 4; use a newer qbench"):
        load_records(path)


@pytest.mark.parametrize("name", ["a*.jsonl", "[ab].jsonl", "it's.jsonl", "a b?.jsonl", 'q".jsonl'])
def test_a_file_name_is_no_pattern(tmp_path, name):
    write_records(tmp_path / "ab.jsonl", [make_record("q4_0")])
    write_records(tmp_path / "a.jsonl", [make_record("q4_0")])
    path = write_records(tmp_path / name, [make_record("q8_0")])
    assert load_records(path)["recipe"].tolist() == ["q8_0"]


def test_files_without_rows(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    assert load_records(tmp_path).empty
    write_records(tmp_path / "more.jsonl", [make_record("q8_0")])
    assert load_records(tmp_path)["recipe"].tolist() == ["q8_0"]
    with pytest.raises(InputError, match=r"absent.jsonl: cannot read records: No such file"):
        load_records(tmp_path / "absent.jsonl")


def test_only_files_that_hold_the_wanted_kinds_are_read(tmp_path, monkeypatch):
    rows = [json.loads(line) for line in SCHEMA_1.read_text().splitlines()]
    for kind, group in groupby(rows, key=lambda row: row["case"].get("kind")):
        write_records(tmp_path / f"{kind}.jsonl", list(group))
    read = []
    monkeypatch.setattr(
        "qbench.store.load.read_records", lambda file: read.append(file.name) or record.read_files(file)
    )
    found = latest_records(tmp_path, kinds=("kernel",))
    assert [row["case"]["op"] for row in found.values()] == ["attention_f32"] and read == ["kernel.jsonl"]
    assert len(latest_records(tmp_path, kinds=(None,))) == 2 and len(latest_records(tmp_path)) == 4


def test_measured_are_the_cases_of_these_machines_by_this_code(tmp_path):
    rows = [make_record(recipe, machine=machine) for recipe in ("bf16", "q8_0", "q4_0") for machine in ("m1", "m2")]
    rows[0] |= {"code": "another"}
    rows[2] |= {"status": "error"}
    path = write_records(tmp_path / "r.jsonl", [*rows, rows[4]])
    with open(path, "a") as file:
        file.write(json.dumps(rows[3])[:-9])  # torn: the last line, and of m2
    assert measured_keys(path, {"m1"}, "c0de") == {rows[4]["key"]}
    assert measured_keys(path, {"m1", "m2"}, "c0de") == {rows[i]["key"] for i in (1, 3, 4, 5)}
    assert measured_keys(path, set(), "c0de") == measured_keys(path, {"m1"}, "other") == set()


def test_files_with_records_of_other_kinds_are_named_in_their_order(tmp_path):
    rows = [json.loads(line) for line in SCHEMA_1.read_text().splitlines()]
    kinds = {kind: list(group) for kind, group in groupby(rows, key=lambda row: row["case"].get("kind"))}
    paths = [write_records(tmp_path / f"{name}.jsonl", part) for name, part in zip("cab", kinds.values(), strict=True)]
    frame, others = load_with_others(paths)
    pd.testing.assert_frame_equal(frame, load_records(paths))
    assert others == [path for path, kind in zip(paths, kinds, strict=True) if kind is not None] and len(others) == 2


def rows_with_bounds() -> list[dict]:
    """Four policies of a cache of 2 MB, and the full cache: (pp, tg, bytes of keys and values that the bound reads)."""
    shares = {"h2o:64": (0.4, 0.3, 1.9e6), "tova:64": (0.4, 0.3, 30e6), "recent:64": (1.7, None, 1.9e6)}
    shares |= {"infllm": (None, None, 1.9e6), "full": (0.4, 1.2, 30e6)}
    found = []
    for policy, (pp, tg, read) in shares.items():
        bound = {"pp": pp, "tg": tg, "tg_bytes": {"kv_read": read}, "bandwidth_of": "round"}
        record = make_record("q8_0", roofline=bound, kv_bytes_held=2_000_000, machine_peaks={"cache_bytes": 1_000_000})
        record["case"]["policy"] = policy
        found.append(record | {"key": policy})
    return found


def test_a_bound_that_counts_evicted_tokens_gives_no_share(tmp_path):
    path = write_records(tmp_path / "r.jsonl", rows_with_bounds())
    shares = load_records(path).set_index("policy")[["roofline_pp", "roofline_tg"]]
    shown = {policy: [none_of(value) for value in row] for policy, row in zip(shares.index, shares.values, strict=True)}
    nothing = [None, None]
    assert shown == {"h2o:64": [0.4, 0.3], "tova:64": nothing, "recent:64": nothing, "infllm": nothing} | {
        "full": [0.4, None]
    }
    assert "no share of the roofline in 2 older rows: the bound counts tokens" in render_report(path, "md")


@pytest.mark.parametrize(
    "read, cache, changes, shown",
    [
        (9e6, 8_000_000, {}, 0.9),
        (7e6, 8_000_000, {}, None),
        (9e6, None, {}, None),  # an older row: the processor's cache may hold them
        (2e9, None, {}, 0.9),
        (7e6, 8_000_000, {"memory": "640MiB"}, 0.9),  # the bound is the disk's
    ],
)
def test_bytes_that_a_cache_holds_have_no_share_of_the_memorys_bandwidth(tmp_path, read, cache, changes, shown):
    bound = {"pp": 0.4, "tg": 0.9, "tg_bytes": {"linears": read / 2, "kv_read": read / 2}, "bandwidth_of": "round"}
    record = make_record("q8_0", roofline=bound, machine_peaks={} if cache is None else {"cache_bytes": cache})
    record["case"] |= changes
    frame = load_records(write_records(tmp_path / "r.jsonl", [record]))
    assert frame["roofline_pp"].tolist() == [0.4] and none_of(frame["roofline_tg"][0]) == shown


def test_a_share_above_all_is_no_share(tmp_path):
    record = make_record("q8_0", roofline={"pp": 1.01, "tg": 1.004, "tg_bytes": {"linears": 2e9}})
    frame = load_records(write_records(tmp_path / "r.jsonl", [record]))
    assert none_of(frame["roofline_pp"][0]) is None and frame["roofline_tg"].tolist() == [1.004]
