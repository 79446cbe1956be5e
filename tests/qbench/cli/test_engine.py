"""`qbench engine`: the table, the JSON, the record, and its refusals."""

import json
import re

import pytest

from qbench.run.options import RunOptions
from qbench.sources import open_source
from qbench.speed.case_memory import check_batch_memory
from quant.errors import InputError

QUICK = ("--requests", "4", "--prompt", "4,8", "--new", "2,6", "--batch", "2", "--rounds", "1", "--threads", "1")


def test_table_json_and_record(qbench, tmp_path):
    kept = tmp_path / "rows.jsonl"
    row = json.loads(qbench("engine", "ref:llama", *QUICK, "--compute", "exact", "--keep", kept, "--json").out)
    assert list(row["contenders"]) == ["engine", "static batches"]
    assert all(figures["tok_s"] > 0 for figures in row["contenders"].values())
    assert row["contenders"]["static batches"]["same_text"] == 1
    record = json.loads(kept.read_text())
    assert record["case"]["kind"] == "throughput" and record["case"]["workload"] == "4 x 4-8+2-6"
    assert record["metrics"]["contenders"] == row["contenders"]


@pytest.mark.parametrize("kv, policy", [("kv-kivi-4", "full"), ("kv-kivi-2", "tova:192"), ("kv-int4-kc", "full")])
def test_kv_formats_that_encode_tokens_together(qbench, kv, policy):
    sizes = ("--requests", "3", "--prompt", "170,220", "--new", "2,5", "--batch", "2", "--rounds", "1")
    words = ("engine", "ref:llama", *sizes, "--threads", "1", "--compute", "exact", "--kv", kv, "--policy", policy)
    row = json.loads(qbench(*words, "--json").out)
    assert row["kv_format"] == kv and row["contenders"]["static batches"]["same_text"] == 1


def test_a_document_is_computed_once(qbench):
    out = qbench("engine", "ref:llama", *QUICK, "--document", "100", "--new", "1,1").out
    (ours,), (alone,) = (
        [line for line in out.splitlines() if line.startswith(name)] for name in ("engine  ", "engine w")
    )
    assert int(alone.split()[4]) - int(ours.split()[2]) > 2 * 100, out


def test_an_engine_with_a_kv_store_finds_earlier_rounds(qbench, tmp_path):
    words = ("engine", "ref:llama", *QUICK, "--prompt", "70,80", "--compute", "exact", "--kv-store", tmp_path / "store")
    row = json.loads(qbench(*words, "--json").out)
    figures, store = row["contenders"]["engine with KV store"], row["kv_store"]
    assert figures["same_text"] == 1 and store["hits"] > 0 and store["loaded_bytes"] > 0
    for block in (path for path in (tmp_path / "store").rglob("*") if path.stat().st_size > 4096):
        block.write_bytes(block.read_bytes()[:-1] + b"?")
    out = qbench(*words, "--rounds", "2").out  # the damaged blocks are found in the first, and are gone in the last
    assert re.search("KV store, all rounds: hits [1-9].* corrupt blocks [1-9]", out), out


def test_impossible_options_are_refused(qbench):
    qbench("engine", "ref:llama", "--prompt", "5").fails_with("--prompt and --new take two numbers")
    qbench("engine", "ref:llama", "--prompt", "9,5").fails_with("prompt is 9,5")
    qbench("engine", "ref:llama", "--prompt", "9,5000").fails_with("context holds")
    qbench("engine", "ref:llama", "--cpu-time", "--threads", "2").fails_with("count it with --threads 1")
    qbench("engine", "ref:llama", "--kv-store", "x", "--policy", "window:64").fails_with("need prefix caching")
    qbench("engine", "ref:llama", *QUICK, "--kv-store", "x", "--kv-store-size", "4096").fails_with("give at least")
    qbench("engine", "ref:llama", "--kv-store", "x", "--kv", "kv-kivi-2").fails_with("leave out --kv-store")
    qbench("engine", "ref:llama", "--vs", "llama.cpp").fails_with("GGUF file")


@pytest.mark.parametrize("model", ["ref:llama", "ref:mla-moe"])
def test_a_batch_beyond_memory_is_refused_with_the_largest_that_fits(qbench, model):
    words = ("engine", model, "--requests", "2", "--prompt", "4,8", "--new", "2,6")
    error = qbench(*words, "--batch", "99999999").fails_with(
        "batch 99999999 of 14 tokens", "largest batch that fits is"
    )
    largest = int(error.split("fits is ")[1].split()[0])
    source, options = open_source(model), RunOptions()
    check_batch_memory(source, options, largest, 14)
    with pytest.raises(InputError):
        check_batch_memory(source, options, largest + 1, 14)


def test_requests_beyond_memory_are_refused(qbench):
    qbench("engine", "ref:llama", *QUICK, "--requests", "2147483647").fails_with("2147483647 requests", "at most")
