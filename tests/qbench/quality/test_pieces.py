"""Logits in pieces: the same bits as whole windows, in the memory that is foretold."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support.memory_source import MemorySource
from support.perplexity import plan_of
from support.small_directory import write_small

from qbench.quality.kld.reference_logits import KeptLogits, save_logits
from qbench.quality.protocols import forward, perplexity
from qbench.quality.protocols.windows import Window
from qbench.quality.quality import Reference, measure_quality
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.tasks.scoring import Request, group_requests, run_forward

VOCAB = 131
TABLE = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(1))


class TableModel:
    """Logits of a fixed table, its head apart: the outputs of the layers are one-hot rows."""

    has_separate_head = True

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.most_rows = 0

    def without_head(self):
        return lambda tokens: torch.nn.functional.one_hot(tokens, VOCAB)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        self.most_rows = max(self.most_rows, len(x))
        return self.scale * TABLE[x.argmax(-1)]

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.scale * TABLE[tokens]


def plan():
    """Windows of several lengths, of which some are scored in part; two scorings share some."""
    rng = np.random.default_rng(0)
    whole = plan_of(rng.integers(VOCAB, size=(5, 40)))
    halves = [Window(each.tokens, 20, each.tokens[21:], each.block) for each in whole.windows[1:3]]
    short = [Window(rng.integers(VOCAB, size=9), 3, rng.integers(VOCAB, size=6), 2)]
    return [whole, dataclasses.replace(whole, windows=[*halves, *short])]


def measured(folder: Path, kind: str) -> list:
    scorings, model = plan(), TableModel(1.0)
    if kind in ("exact", "top-k"):
        named = {"model": "ref", "fingerprint": "f"}
        nll = [save_logits(folder / f"{p}", TableModel(0.9), each, VOCAB, mode=kind, named=named)
               for p, each in enumerate(scorings)]  # fmt: skip
        kept = [KeptLogits(folder / f"{p}") for p in range(2)]
        found = measure_quality(model, scorings, VOCAB, reference=Reference(VOCAB, kept=kept))
        return [*nll, *(np.array(each.rows).tobytes() for each in kept), *found]
    beside = {"alone": {}, "reference": {"reference": Reference(VOCAB, TableModel(0.9))}}
    beside["textbook"] = {"textbook": TableModel(1.1)}
    return list(measure_quality(model, scorings, VOCAB, **beside[kind]))


@pytest.mark.parametrize("kind", ["alone", "reference", "textbook", "exact", "top-k"])
@pytest.mark.parametrize("rows", [8, 17, 39])
def test_pieces_have_the_bits_of_whole_windows(tmp_path, monkeypatch, kind, rows):
    def plain(results):
        return [dataclasses.replace(each, timed_seconds=0.0).to_json() if hasattr(each, "to_json") else each
                for each in results]  # fmt: skip

    (tmp_path / "whole").mkdir()
    whole = plain(measured(tmp_path / "whole", kind))
    monkeypatch.setattr(forward, "PIECE_BYTES", 4 * VOCAB * rows)
    monkeypatch.setattr(perplexity, "FLOAT64_BYTES", 0)
    np.testing.assert_equal(plain(measured(tmp_path, kind)), whole)


def test_no_piece_is_larger_than_asked(monkeypatch):
    monkeypatch.setattr(forward, "PIECE_BYTES", 4 * VOCAB * 17)
    model = TableModel(1.0)
    measure_quality(model, plan(), VOCAB)
    assert 12 <= model.most_rows <= 17
    assert forward.pieces(3, 54, VOCAB) == [slice(3, 20), slice(20, 37), slice(37, 54)]


def test_continuations_of_tasks_have_the_bits_of_whole_ones(monkeypatch):
    model = load_model(MemorySource(), RunOptions())
    tokens = tuple(torch.randint(0, 320, (60,), generator=torch.Generator().manual_seed(0)).tolist())
    requests = [Request(tokens[:4], tokens[start : start + 20]) for start in range(5, 12)]
    (work,) = group_requests(requests, 320)
    whole = list(run_forward(model, work))
    monkeypatch.setattr(forward, "PIECE_BYTES", 4 * 320 * 70)
    for (request, got), (same, expected) in zip(run_forward(model, work), whole, strict=True):
        assert request == same and got.greedy == expected.greedy
        # A product of float32 may sum in another order for another number of rows: 64 terms, 20 tokens.
        assert got.loglikelihood == pytest.approx(expected.loglikelihood, rel=20 * 64 * 2.0**-24)


def test_memory_is_that_of_a_piece(tmp_path):
    """Whole logits of a window are 262 MB, and their comparison in float64 several times that."""
    model = write_small("llama", tmp_path / "model", vocab_size=128_256)
    (tmp_path / "text.txt").write_text("Once upon a time there was a little girl who liked to play. " * 100)
    code = (
        "import sys\nfrom qbench.cli.main import main\ntry:\n    main()\nfinally:\n"
        "    print([line for line in open('/proc/self/status') if line.startswith('VmHWM')][0], file=sys.stderr)"
    )
    words = ("eval", model, "--text", tmp_path / "text.txt", "--protocol", "windows-512", "--windows", "2", "--json")
    words = (*words, "--recipe", "q8_0", "--reference", model)
    # An embedding of this test takes 32.8 MB, and glibc keeps freed blocks of up to 32 MiB, which larger models exceed.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)],
                          capture_output=True, text=True, check=True, env=environment)  # fmt: skip
    assert json.loads(done.stdout)["num_windows"] == 2
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", done.stderr)
    ((total, unit),) = re.findall(r"peak memory about ([\d.]+) (MB|GB)", done.stderr)
    foretold = float(total) * {"MB": 1e6, "GB": 1e9}[unit]
    assert 0.9 * foretold < 1024 * int(peak) < 1.1 * foretold, done.stderr
