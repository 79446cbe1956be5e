"""Each command on a real, small model: its output for people and for machines."""

import json
import subprocess
import sys

import pytest

from qbench.cli.main import COMMANDS


@pytest.fixture
def artifact(qbench, tmp_path):
    path = tmp_path / "m.gguf"
    assert qbench("quantize", "ref:llama", "--recipe", "q4_k_m", "-o", path).status == 0
    return path


def test_help_lists_every_command(qbench):
    outcome = qbench("--help")
    assert outcome.status == 0 and all(name in outcome.out for name in COMMANDS)
    assert qbench().out == outcome.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(qbench, name):
    outcome = qbench(name, "--help")
    assert outcome.status == 0 and outcome.out.startswith(f"Usage: qbench {name}")


WITHOUT_TORCH = [["models"], ["recipes"], ["inspect", "ref:llama"], *([name, "--help"] for name in COMMANDS)]


def test_commands_that_compute_nothing_do_not_wait_for_torch(qbench):
    """All in one process, which ends at the first that imports torch."""
    look = """
import sys
from qbench.cli.main import main
for argv in {}:
    main(argv)
    sys.exit(argv) if "torch" in sys.modules else None
"""
    code = look.format(WITHOUT_TORCH)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_info_as_json(qbench):
    info = json.loads(qbench("info", "--json", "--no-measure").out)
    assert info["cores"] >= 1 and info["machine_peaks"] == {}
    assert any(op["op"] == "linear_q8_0" and op["chosen"] for op in info["kernels"])


def test_models_lists_sources_without_files(qbench):
    listed = [json.loads(line)["spec"] for line in qbench("models", "--json").out.splitlines()]
    assert {"ref:llama", "ref:llama-outliers", "rand:llama-3.2-1b"} <= set(listed)


def test_quantize_reports_its_output(qbench, tmp_path):
    result = json.loads(qbench("quantize", "ref:llama", "--recipe", "q8_0", "-o", tmp_path / "m.gguf", "--json").out)
    assert result["artifact"] == str(tmp_path / "m.gguf") and 8.5 <= result["bits_per_weight"] < 8.6


def test_plan_writes_nothing(qbench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = qbench("quantize", "ref:llama", "--recipe", "q4_k_m", "--dry-run")
    assert outcome.status == 0 and "q6_k" in outcome.out and "q4_k" in outcome.out
    assert list(tmp_path.iterdir()) == []


def test_inspect_counts_every_tensor(qbench, artifact):
    inspected = json.loads(qbench("inspect", artifact, "--json").out)
    assert sum(tensor["size_bytes"] for tensor in inspected["tensors"]) == inspected["size_bytes"]
    assert "q4_k" in qbench("inspect", artifact).out


def test_eval_against_a_reference(qbench, artifact):
    argv = ("eval", artifact, "--reference", "ref:llama", "--windows", "2")
    result = json.loads(qbench(*argv, "--json").out)
    assert result["num_windows"] == 2 and 0 < result["kld"]["mean"] < 1 and 0 < result["same_top"] <= 1
    assert f"{result['perplexity']:.4f}" in qbench(*argv).out


def test_bench_keeps_its_samples(qbench):
    argv = ("bench", "ref:llama", "--recipe", "q8_0", "-p", "16", "-n", "4", "-r", "2", "--threads", "1")
    result = json.loads(qbench(*argv, "--json").out)
    assert result["threads"] == 1 and [len(result["samples"][f"{phase}_tok_s"]) for phase in ("pp", "tg")] == [2, 2]
    assert "tok/s" in qbench(*argv).out


def test_bench_of_one_phase(qbench):
    result = json.loads(qbench("bench", "ref:llama", "-p", "0", "-n", "2", "-r", "1", "--json").out)
    assert result["pp_tok_s"] is None and result["tg_tok_s"] > 0
    assert "n/a" in qbench("bench", "ref:llama", "-p", "0", "-n", "2", "-r", "1").out


def test_generate_takes_the_prompt_in_either_form(qbench):
    argv = ("generate", "ref:llama", "-n", "4", "--json")
    texts = {json.loads(qbench(*argv, *words).out)["prompt"] for words in (("the",), ("--prompt", "the"))}
    assert texts == {"the"} and json.loads(qbench(*argv).out)["prompt"] == ""
    qbench(*argv, "the", "--prompt", "").fails_with("PROMPT and --prompt are the same; give one of them")


def test_generate_streams_the_text_of_json(qbench):
    argv = ("generate", "ref:llama", "--prompt", "the", "-n", "12", "--temperature", "0.8", "--seed", "3")
    result = json.loads(qbench(*argv, "--json").out)
    assert len(result["tokens"]) <= 12 and qbench(*argv).out.rstrip("\n") == result["text"].rstrip("\n")


def test_generate_ends_before_a_stop_string(qbench):
    argv = ("generate", "ref:llama", "--prompt", "the", "-n", "24", "--json")
    free = json.loads(qbench(*argv).out)["text"]
    stop = free[9:12]
    result = json.loads(qbench(*argv, "--stop", stop, "--stop", "\u2603", "--logprobs", "1").out)
    assert (result["text"], result["stop_reason"]) == (free[: free.index(stop)], "stop")
    assert [scores["top"][0][0] for scores in result["logprobs"]] == result["tokens"], "greedy takes the likeliest"


def test_sweep_then_report(qbench, tmp_path):
    suite = tmp_path / "s.yaml"
    suite.write_text(
        "name: s\nmodels: [ref:llama]\nrecipes: [q8_0]\neval: {max_windows: 1}\nbench: {pp: 8, tg: 2, repetitions: 1}\n"
    )
    first = qbench("sweep", suite, "-o", tmp_path / "run")
    assert first.status == 0 and "q8_0" in first.out and str(tmp_path / "run" / "report.html") in first.out
    again = qbench("sweep", suite, "-o", tmp_path / "run", "--json")
    assert "already measured" in again.err and json.loads(again.out)["recipe"] == "q8_0"
    records = tmp_path / "run" / "records.jsonl"
    assert json.loads(qbench("report", records, "--json").out)[0]["perplexity"] > 1
    records.write_text(records.read_text().replace('"dirty": true', '"dirty": false'))  # whatever this checkout is
    for added in (1, 0):
        assert f"{added} rows added" in qbench("report", records, "--keep", tmp_path / "kept.jsonl").err
    assert (tmp_path / "kept.jsonl").read_bytes() == records.read_bytes()
    assert qbench("report", records.parent, "--json").out == qbench("report", records, "--json").out
    readme = tmp_path / "README.md"
    readme.write_text("# t\n<!-- qbench:quickstart begin -->\nold\n<!-- qbench:quickstart end -->\n")
    assert qbench("report", records, "--into", readme).status == 0
    assert "q8_0" in readme.read_text() and "old" not in readme.read_text()


def test_skills_of_a_stranger(qbench):
    qbench("models", "rand:tiny", "--skills").fails_with("rand:tiny", "ref")


def test_eval_with_keys_and_values_in_another_format(qbench, artifact):
    plain = json.loads(qbench("eval", artifact, "--reference", "ref:llama", "--windows", "1", "--json").out)
    run = qbench("eval", artifact, "--reference", "ref:llama", "--windows", "1", "--kv", "kv-int4", "--json")
    assert plain["kv_format"] is None and json.loads(run.out)["kv_format"] == "kv-int4"
    assert json.loads(run.out)["kld"]["mean"] > plain["kld"]["mean"]


def test_f32_asks_for_keys_and_values_in_float32(qbench, tmp_path):
    """In each command, and also of a model that names another format."""
    coded = tmp_path / "coded"
    assert qbench("quantize", "ref:llama", "--recipe", "rtn-w8+kv-int8", "-o", coded).status == 0
    measure, few = (
        ("--reference", "ref:llama", "--windows", "1", "--json"),
        ("--requests", "2", "--prompt", "4,8", "--new", "2,4", "--rounds", "1"),
    )
    assert json.loads(qbench("eval", coded, *measure).out)["kv_format"] == "kv-int8"
    for argv in (
        ("eval", coded, *measure),
        ("bench", coded, "-p", "8", "-n", "2", "-r", "1", "--json"),
        ("engine", coded, *few, "--json"),
        ("plan", coded, "--json"),
        ("plan", "ref:llama", "--recipe", "rtn-w8+kv-int8", "--json"),
        ("generate", coded, "--prompt", "The", "-n", "2", "--json"),
        ("mla", "ref:mla-moe", "--ctx", "32", "--batch", "1", "--tokens", "1", "--rounds", "1", "--json"),
    ):
        outcome = qbench(*argv, "--kv", "f32")
        assert outcome.status == 0, outcome
        assert json.loads(outcome.out.splitlines()[0]).get("kv_format") is None, argv


def test_f32_is_refused_on_a_device_that_keeps_16_bits(qbench, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for command, model in (("eval", "ref:llama"), ("bench", "ref:llama"), ("mla", "ref:mla-moe")):
        argv = (command, model, "--device", "interpreter", "--kv", "f32")
        qbench(*argv).fails_with("KV format f32 is on the CPU alone; device interpreter keeps 16 bits")


def test_unknown_kv_formats(qbench, artifact):
    qbench("eval", artifact, "--kv", "kv-int9").fails_with("unknown KV format 'kv-int9'; known are f32, kv-fp8")
    qbench("bench", artifact, "--kv", "kv-fp8-cal").fails_with("kv-fp8-cal needs the ranges of keys and values")


def test_bench_at_several_depths(qbench):
    argv = ("bench", "ref:llama", "-p", "8", "-n", "2", "-r", "1", "-d", "0,16", "--json")
    assert [json.loads(line)["depth"] for line in qbench(*argv).out.splitlines()] == [0, 16]
    qbench("bench", "ref:llama", "-d", "0,-1").fails_with("-1 is not in the range")
    qbench("bench", "ref:llama", "-d", "99999999999999999999").fails_with("is not in the range 0<=x<=2147483647")
    qbench("bench", "ref:llama", "-d", "deep").fails_with("'deep' is no list of integers")


def test_race_next_to_llama_cpp(qbench, artifact, tmp_path):
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    kept = tmp_path / "kept.jsonl"
    argv = (
        "race",
        artifact,
        "--vs",
        "llama.cpp",
        "-p",
        "8",
        "-n",
        "2",
        "-r",
        "2",
        "--threads",
        "1",
        "--keep",
        kept,
        "--cpu-time",
    )
    outcome = qbench(*argv)
    assert outcome.status == 0 and "pp8@0 ratio" in outcome.out and "tg2@0 llama.cpp" in outcome.out
    table = qbench("report", kept).out
    assert f"| {artifact.name}" in table and "| pp8 " in table and "| tg2 " in table
