"""`evaluate`, `bench` and the worker on real models: from a spec to the keys that the command line prints."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.close import assert_close
from support.data import REPO, STORIES260K, TINYSTORIES_VALID, needs_stories, needs_tinystories
from support.measuring import benched, evaluated, saved_reference
from support.perplexity import stacked
from support.waits import WAIT_S

from qbench.measure.host.commit import QUANTIZING, code_hash
from qbench.quality.evaluate import prepare, read_text
from qbench.quality.kld.reference_logits import cache_path, kept_bytes, save_logits
from qbench.reference.corpus import heldout_text
from qbench.run.choices import PRECISIONS
from qbench.runtime import load_model
from qbench.sources import open_source
from qbench.statistics.paired import require_same_protocol
from quant.errors import InputError

STORIES = str(STORIES260K)
FACTS = {"model", "recipe", "artifact", "bits_per_weight", "size_bytes", "isa", "device", "threads", "machine"} | {
    "compute",
    "affinity",
    "numa_nodes",
}


@pytest.fixture(scope="session")
def story(tmp_path_factory):
    """The first stories, enough for a few windows."""
    path = tmp_path_factory.mktemp("text") / "story.txt"
    path.write_text(TINYSTORIES_VALID.read_text(encoding="utf-8")[:12_000], encoding="utf-8")
    return path


@needs_stories
@needs_tinystories
def test_perplexity_equals_a_plain_loop_over_transformers(story):
    transformers = pytest.importorskip("transformers")
    result = evaluated(STORIES, text=story)
    (scoring,) = prepare(open_source(STORIES), read_text(story), None)
    protocol, windows = scoring.protocol, stacked(scoring)
    oracle = transformers.LlamaForCausalLM.from_pretrained(STORIES, dtype=torch.float32)
    with torch.inference_mode():
        losses = [oracle(torch.tensor(w[None]), labels=torch.tensor(w[None])).loss.item() for w in windows]
    assert result["protocol"]["hash"] == protocol.hash and result["protocol"]["name"] == "windows-512"
    assert result["num_tokens"] == windows.size - len(windows)
    # Both sum float32 logits of width 64 through 5 layers; a loss is a mean over 511 tokens of errors that cancel.
    assert_close(result["nll"], np.mean(losses), rtol=2.0**-23 * 64 * 5)


@needs_stories
@needs_tinystories
def test_divergence_grows_as_bits_shrink(story):
    results = {
        recipe: evaluated(STORIES, recipe=recipe, reference=STORIES, text=story, max_windows=2)
        for recipe in ("bf16", "q8_0", "q4_0")
    }
    assert FACTS | {"perplexity", "protocol", "kld", "same_top", "seconds"} <= results["q8_0"].keys()
    assert list(results["q8_0"]["kld"])[:6] == ["mean", "median", "p90", "p99", "p999", "max"]
    means = [results[recipe]["kld"]["mean"] for recipe in ("bf16", "q8_0", "q4_0")]
    assert 0 < means[0] < means[1] < means[2] / 5
    assert results["bf16"]["bits_per_weight"] > results["q8_0"]["bits_per_weight"] > results["q4_0"]["bits_per_weight"]
    json.dumps(results, allow_nan=False)


@needs_stories
@needs_tinystories
def test_products_are_of_the_protocol_so_that_unlike_rows_never_join(story):
    """In float32 the file's own loss is all there is; by default activations are rounded to int8 as well."""
    settings = {"reference": STORIES, "text": story, "recipe": "q4_0", "max_windows": 2}
    rows = {compute: evaluated(STORIES, **settings, compute=compute) for compute in PRECISIONS}
    fast, exact, float32 = (rows[compute]["protocol"] for compute in PRECISIONS)
    assert len({fast["hash"], exact["hash"], float32["hash"]}) == 3
    (scoring,) = prepare(open_source(STORIES), read_text(story), 2)
    assert fast == scoring.protocol.describe().to_json(), "what rows from before have"
    for other, name in ((exact, "exact"), (float32, "float32")):
        with pytest.raises(InputError, match=rf"unlike protocol .* compute \(None and {name}\)"):
            require_same_protocol(fast, other)
    assert [row["compute"] for row in rows.values()] == list(PRECISIONS)
    assert set(rows["float32"]["impls"]) == {"reference"} and rows["exact"]["impls"] != rows["float32"]["impls"]
    assert rows["float32"]["perplexity"] != rows["exact"]["perplexity"]


@needs_stories
@needs_tinystories
def test_cached_reference_changes_no_digit(story, tmp_path):
    source = open_source(STORIES)
    (scoring,) = prepare(source, read_text(story), 3)
    path = cache_path(tmp_path, scoring.protocol, source.fingerprint())
    named = {"model": STORIES, "fingerprint": source.fingerprint()}
    save_logits(path, load_model(source, impl="reference"), scoring, 512, mode="exact", named=named)
    assert path.stat().st_size - kept_bytes(scoring, 512, "exact") in range(1, 4096), "a header and the logits"
    settings = {"reference": STORIES, "text": story, "recipe": "q4_0", "max_windows": 3}
    cached, computed = evaluated(STORIES, **settings, logits_cache=tmp_path), evaluated(STORIES, **settings)
    assert cached["kld"] == computed["kld"] and cached["blocks"] == computed["blocks"]
    assert cached["kld_reference"]["bytes"] == path.stat().st_size


@needs_stories
@needs_tinystories
def test_one_run_reports_all_conventions_the_same_as_separate_runs(story):
    settings = {"reference": STORIES, "text": story, "recipe": "q4_0", "max_windows": 2}
    together = evaluated(STORIES, **settings, protocols=["all"])
    names = ["windows-512", "llama.cpp-512", "lm-eval-word", "lm-eval-byte", "stride-256"]
    assert list(together["protocols"]) == names
    assert together["perplexity"] == together["protocols"]["windows-512"]["perplexity"]
    assert len({told["protocol"]["hash"] for told in together["protocols"].values()}) == len(names)
    for name in names:
        alone = evaluated(STORIES, **settings, protocols=[name])
        assert "protocols" not in alone
        # A window's rows are computed with others in a batch: float32 sums of width 64 in another order.
        assert_close(alone["nll"], together["protocols"][name]["nll"], rtol=2.0**-23 * 64)
        assert alone["protocol"] == together["protocols"][name]["protocol"]
    json.dumps(together, allow_nan=False)


@needs_stories
@needs_tinystories
@pytest.mark.parametrize("mode", ["exact", "top-k"])
def test_saved_logits_replace_the_reference(story, tmp_path, mode):
    settings = {"text": story, "max_windows": 3}
    saved = saved_reference(STORIES, tmp_path / "x", **settings, protocols=["llama.cpp-128"], mode=mode)
    live = evaluated(STORIES, **settings, recipe="q4_0", reference=STORIES, protocols=["llama.cpp-128"])
    from_file = evaluated(STORIES, text=story, recipe="q4_0", logits=tmp_path / "x")
    assert from_file["protocol"] == live["protocol"] == saved["protocol"] and from_file["reference"] == STORIES
    assert saved["logits"]["mode"] == mode and saved["logits"]["bytes"] == (tmp_path / "x").stat().st_size
    base = live["llama_perplexity"]["Mean PPL(base)"]["value"]
    assert_close(saved["perplexity"], base, rtol=512 * 2.0**-52 * 8)
    assert_close(from_file["llama_perplexity"]["Mean PPL(base)"]["value"], base, rtol=512 * 2.0**-52 * 8)
    if mode == "exact":
        assert from_file["kld"] == live["kld"]
    bound = from_file["kld_reference"]["error_bound_nats"]
    assert abs(from_file["kld"]["mean"] - live["kld"]["mean"]) <= bound + 512 * 2.0**-52
    assert from_file["same_top"] == live["same_top"]


@needs_stories
@needs_tinystories
def test_a_file_of_logits_names_protocol_documents_and_their_number(story, tmp_path):
    saved_reference(
        STORIES, tmp_path / "x", text=story, max_windows=1, documents="whole", protocols=["lm-eval-word"], mode="top-k"
    )
    result = evaluated(STORIES, text=story, logits=tmp_path / "x")
    assert (result["protocol"]["name"], result["protocol"]["documents"]) == ("lm-eval-word", "whole")
    assert result["kld"]["mean"] < 512 * 2.0**-24, "the model is its own reference, but for its kernels' rounding"


@needs_stories
@needs_tinystories
def test_saved_logits_of_something_else_are_refused_and_it_is_named(story, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(story.read_text()[1000:])
    saved_reference(STORIES, tmp_path / "x", text=story, max_windows=3)
    for changed, named in (
        ({"text": other}, "data_sha256"),
        ({"max_windows": 2}, "num_windows"),
        ({"protocols": ["stride-100"]}, "stride"),
        ({"protocols": ["all"]}, "holds one protocol, windows-512"),
        ({"reference": STORIES}, "give one of them"),
    ):
        with pytest.raises(InputError, match=named):
            evaluated(STORIES, **{"text": story, "logits": tmp_path / "x"} | changed)
    with pytest.raises(InputError, match="tokens_sha256"):
        evaluated("ref:llama", text=story, logits=tmp_path / "x", protocols=["windows-512"], max_windows=3)


def test_a_random_model_is_benched_but_not_evaluated(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("words " * 100)
    result = benched("rand:tiny", recipe="q8_0", pp=16, tg=4, repetitions=2, threads=1)
    assert FACTS | {"pp_tok_s", "tg_tok_s", "ttft_ms", "tpot_ms", "kv_bytes_per_token", "samples"} <= result.keys()
    assert result["pp_tok_s"] > 0 and len(result["samples"]["tg_tok_s"]) == 2 and result["threads"] == 1
    assert result["peak_rss_bytes"] >= result["baseline_rss_bytes"] > 0
    assert 0 < result["roofline"]["pp"] and sum(result["roofline"]["tg_bytes"].values()) > 0
    assert result["predicted_bytes"]["total"] > 0 and result["predicted_bytes"]["weights"] == result["size_bytes"]
    assert result["artifact"] is None
    json.dumps(result, allow_nan=False)
    with pytest.raises(InputError, match="has no tokenizer"):
        evaluated("rand:tiny", text=text)


def test_a_text_is_scored_byte_for_byte(tmp_path):
    """llama-perplexity and lm-eval score carriage returns, too."""
    (tmp_path / "crlf.txt").write_bytes(b"one\r\ntwo\rthree\n")
    assert read_text(tmp_path / "crlf.txt") == "one\r\ntwo\rthree\n"


def test_a_text_is_needed_and_must_be_text(tmp_path):
    (tmp_path / "latin1.txt").write_bytes("café".encode("latin-1"))
    with pytest.raises(InputError, match="give a UTF-8 text file"):
        read_text(None, "rand:tiny", None)
    with pytest.raises(InputError, match="not UTF-8 at byte 3"):
        read_text(tmp_path / "latin1.txt")
    with pytest.raises(InputError, match="cannot read the text"):
        read_text(tmp_path / "absent.txt")


def test_a_sweep_writes_the_held_out_text_once(tmp_path):
    assert read_text(None, "ref:llama", kept=tmp_path) == heldout_text()
    (kept,) = tmp_path.iterdir()
    kept.write_text("another", encoding="utf-8")
    assert read_text(None, "ref:llama", kept=tmp_path) == "another"


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_below_one(threads):
    with pytest.raises(InputError, match="expected 1 to 1024"):
        benched("rand:tiny", threads=threads)


@pytest.fixture(scope="module")
def worker():
    """(name, arguments) of a job -> the worker's messages and the status of its process; one worker for all"""
    command, pipe = [sys.executable, "-m", "qbench.sweeps.worker"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=REPO) as process:

        def run(name: str, arguments: dict) -> SimpleNamespace:
            job = {"name": name, "arguments": arguments}
            process.stdin.write(json.dumps({"job": job, "log": os.devnull, "environment": {}}) + "\n")
            process.stdin.flush()
            messages = []
            while "ended" not in (last := json.loads(process.stdout.readline())):
                messages.append(last)
            return SimpleNamespace(status=last["ended"], messages=messages)

        yield run
        process.stdin.close()
        assert process.wait(timeout=WAIT_S) == 0


def test_worker_quantizes_and_measures(worker, tmp_path):
    fingerprint = open_source("rand:tiny").fingerprint()
    job = {"model": "rand:tiny", "recipe": "q8_0", "folder": str(tmp_path)}
    job |= {"calibration": None, "threads": 1}
    changed = worker("quantize", {**job, "fingerprint": "0" * 64})
    assert changed.status == 1 and "changed while the sweep ran" in changed.messages[-1]["error"]
    quantized = worker("quantize", {**job, "fingerprint": fingerprint})
    assert quantized.status == 0 and quantized.messages[-1]["result"]["file"] == "model.gguf"
    assert quantized.messages[-1]["result"]["code"] == code_hash(QUANTIZING)
    sizes = {"pp": 8, "tg": 2, "depth": 0, "repetitions": 1}
    settings = {"work": {"speed": sizes}, "options": {"threads": 1}}
    artifact = str(tmp_path / "model.gguf")
    measured = worker("measure", {"artifact": artifact, "model": "rand:tiny", "logits": "", **settings})
    assert {"progress": [1, 1, "repetitions"]} in measured.messages
    assert measured.messages[-1]["result"]["pp_tok_s"] > 0


def test_worker_reports_an_error_in_one_line(worker):
    job = {"model": "no/such/model", "fingerprint": "", "recipe": "q8_0", "folder": ""}
    done = worker("quantize", {**job, "calibration": None, "threads": 1})
    assert done.status == 1 and "no/such/model" in done.messages[-1]["error"]
