"""`--keep` takes records of a commit alone."""

from dataclasses import replace

import pytest
from support.sample_records import make_record, write_records

from qbench.cli import keep_path
from qbench.measure.host.commit import code_version


@pytest.mark.parametrize(
    "argv",
    [
        ("kernels", "--only", "linear_q8_0", "--m", "1"),
        ("plan", "shape:llama-2-7b"),
        ("plan", "rand:tiny", "--goal", "latency", "--memory", "1GiB"),
        ("breakeven", "rand:tiny"),
        ("engine", "rand:tiny"),
        ("mla", "ref:mla-moe"),
        ("race", "model.gguf", "--vs", "llama.cpp"),
        ("compare", "ref:llama", "--noise-floor"),
        ("search", "ref:llama", "--target", "4bpw", "-o", "x.gguf"),
    ],
    ids=lambda argv: " ".join(argv[:3]),
)
def test_a_tree_with_changes_is_refused_before_anything_is_measured(qbench, tmp_path, monkeypatch, argv):
    monkeypatch.setattr(keep_path, "code_version", lambda: replace(code_version(), commit="f" * 40, dirty=True))
    kept = tmp_path / "kept.jsonl"
    qbench(*argv, "--keep", kept).fails_with("a tree with changes to commit ffffffffff", "commit them")
    assert not kept.exists()


@pytest.mark.parametrize("option", [("--baseline", "HEAD", "--keep"), ("--save",)], ids=["keep", "save"])
def test_a_gate_keeps_nothing_of_a_tree_with_changes(qbench, tmp_path, monkeypatch, option):
    monkeypatch.setattr(keep_path, "code_version", lambda: replace(code_version(), commit="f" * 40, dirty=True))
    qbench("gate", "--suite", "ci", *option, tmp_path / "kept.jsonl").fails_with("a tree with changes", "commit them")
    assert not list(tmp_path.iterdir())


def test_rows_of_such_a_tree_are_refused_whole(qbench, tmp_path):
    rows = [make_record("bf16"), make_record("q8_0") | {"dirty": True}]
    records, kept = write_records(tmp_path / "run.jsonl", rows), tmp_path / "kept.jsonl"
    qbench("report", records, "--keep", kept).fails_with("1 of 2 rows were measured by a tree with changes")
    assert not kept.exists()
