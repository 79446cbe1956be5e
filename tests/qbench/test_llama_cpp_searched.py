"""Mixes that `qbench search` writes, opened by llama.cpp: the same tokens give the same perplexity."""

from pathlib import Path

import pytest
from support.architectures import EVERY_EXPERT
from support.artifact import write_artifact
from support.data import STORIES260K, TINYSTORIES_VALID, needs_stories, needs_tinystories, written
from support.llama_logits import llama_cpp_perplexity
from support.perplexity import assert_agree, our_perplexity, stacked
from support.small_directory import write_small

from qbench.quality.evaluate import prepare, read_text
from qbench.run.work import GENERATED, CalibrationWork
from qbench.search.plan import SearchOptions, plan_search
from qbench.search.search import search
from qbench.search.target import parse_target
from qbench.sources import open_source
from quant.artifacts import HFSource
from quant.recipes import get_recipe

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

pytestmark = [pytest.mark.exhaustive("a search for each"), pytest.mark.usefixtures("inputs_of_8_bits")]
NAME = "best"


def check(folder: Path, model: str | Path, target: str, text: Path | None = None, calibration: str | None = None):
    """Searches, and compares the perplexity of the first window of the held-out text."""
    source, path = open_source(str(model)), folder / f"{NAME}.gguf"
    by = CalibrationWork(calibration, samples=8, seq_len=128)
    found = search(plan_search(source, SearchOptions(parse_target(target), path, by, text=text, windows=6)))
    assert found.metrics.chosen == NAME and len({each.split()[0] for each in found.metrics.mix.values()}) > 1
    windows = stacked(prepare(source, read_text(text, str(model)), 1)[0])
    assert_agree(our_perplexity(open_source(str(path)), windows), llama_cpp_perplexity(path, windows))


@pytest.mark.parametrize("model", ["ref:llama", "ref:mla-moe"])
def test_a_reference_model(tmp_path, model):
    check(tmp_path, model, "3bpw")


@needs_stories
@needs_tinystories
def test_a_directory_of_hugging_face(tmp_path):
    texts = [TINYSTORIES_VALID.with_name("train.txt"), TINYSTORIES_VALID]
    calibration, text = (written(tmp_path / one.name, one.read_text(encoding="utf-8")[:30000]) for one in texts)
    check(tmp_path, STORIES260K, "9bpw", text, str(calibration))


def test_a_gguf_file(tmp_path):
    path = write_artifact(open_source("ref:llama"), tmp_path / "whole.gguf", recipe=get_recipe("bf16"))
    check(tmp_path, path, "3bpw", written(tmp_path / "text.txt", read_text(None, "ref:llama")), GENERATED)


@pytest.mark.parametrize("kind", ["qwen3moe", "mixtral", "deepseek3"])
def test_a_directory_with_experts(tmp_path, kind):
    """All experts run: a choice that a rounded input flips would be another model."""
    sizes = dict.fromkeys(("hidden_size", "intermediate_size", "moe_intermediate_size"), 256)
    path = write_small(kind, tmp_path / "model", **sizes, **EVERY_EXPERT[kind])
    assert any(".experts." in name for name in HFSource(path).tensors)
    check(tmp_path, path, "5bpw", written(tmp_path / "text.txt", read_text(None, "ref:llama")), GENERATED)
