"""`qbench eval` with protocols and kept logits, as a user runs it."""

import json


def test_all_conventions_in_one_run(qbench):
    argv = ("eval", "ref:llama", "--recipe", "q4_0", "--protocol", "all", "--windows", "2")
    result = json.loads(qbench(*argv, "--json").out)
    names = ["windows-1024", "llama.cpp-512", "lm-eval-word", "lm-eval-byte", "stride-512"]
    assert list(result["protocols"]) == names
    outcome = qbench(*argv)
    lines = [line for line in outcome.err.splitlines() if not line.startswith("evaluate ")]  # progress, if it is slow
    assert outcome.status == 0 and len(lines) == 1 and lines[0].startswith("peak memory about ")
    for name, told in result["protocols"].items():
        (line,) = (line for line in outcome.out.splitlines() if line.startswith(name))
        assert f"perplexity {told['perplexity']:.4f}" in line and told["protocol"]["hash"][:12] in line


def test_a_text_of_few_tokens_is_warned_of(qbench, tmp_path):
    (tmp_path / "short.txt").write_text("abcde")
    outcome = qbench("eval", "ref:llama", "--text", tmp_path / "short.txt", "--json")
    assert json.loads(outcome.out)["num_tokens"] < 10
    assert "says little about a model; use a text of 1000 tokens" in outcome.err


def test_logits_are_saved_and_used(qbench, tmp_path):
    logits = tmp_path / "ref.logits"
    text = ("--windows", "2", "--protocol", "llama.cpp-256")
    saved = qbench("eval", "ref:llama", *text, "--save-logits", logits, "--kld-reference", "top-k", "--json")
    assert json.loads(saved.out)["compute"] == "float32", "the reference path has no integer products"
    saved = qbench("eval", "ref:llama", *text, "--save-logits", logits, "--kld-reference", "top-k")
    assert saved.status == 0 and "x smaller than fp16 logits" in saved.out
    result = json.loads(qbench("eval", "ref:llama", "--recipe", "q4_0", "--logits", logits, "--json").out)
    live = json.loads(qbench("eval", "ref:llama", "--recipe", "q4_0", "--reference", "ref:llama", *text, "--json").out)
    assert result["kld_reference"]["mode"] == "top-k" and result["kld_reference"]["bytes"] == logits.stat().st_size
    off = abs(live["kld"]["mean"] - result["kld"]["mean"])
    assert off <= result["kld_reference"]["error_bound_nats"] and off <= 5 * result["kld_reference"]["error_nats"]


def test_a_comparison_prints_the_lines_of_llama_perplexity(qbench):
    out = qbench("eval", "ref:llama", "--recipe", "q8_0", "--reference", "ref:llama", "--windows", "2").out
    for name in ("Mean PPL(Q)", "Cor(ln(PPL(Q)), ln(PPL(base)))", "99.9% KLD", "RMS \u0394p", "Same top p"):
        assert any(line.startswith(name) for line in out.splitlines()), name
    assert "kld at 512-1024 tokens" in out and "kld at top p 0.99-1" in out


def test_a_file_that_holds_no_logits(qbench):
    qbench("eval", "ref:llama", "--logits", __file__).fails_with("test_eval_protocols.py", "--save-logits")
