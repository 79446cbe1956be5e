"""The process stays within its limit for real: the kernel would end it, and counts its page cache, too."""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.artifact import write_artifact
from support.byte_tokenizer import byte_level_json
from support.memory_limit import Limited, run_within
from tokenizers import AddedToken
from tokenizers import Tokenizer as JsonTokenizer

from qbench.runtime.offload.stream_file import SUFFIX
from qbench.sources import open_source
from qbench.sources.rand import RandomSource
from qbench.sources.shapes import SHAPES
from quant.recipes import get_recipe
from quant.source import TokenizerInfo

MEBI = 1 << 20
# Python and torch take 250 to 330 MiB, and two processes differ by tens of MiB: the limit comes from a refusal.
VARIES = 32 * MEBI
TOO_SMALL = 100 * MEBI
REFUSED = re.compile(r"--memory \d+MiB is too little .* the smallest that works here is (\d+)MiB")
RUN = """
import json, sys, torch
from qbench.measure.host.memory import peak_rss_bytes
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.sources import open_source
model = load_model(open_source(sys.argv[1]), RunOptions(memory_bytes=int(sys.argv[2]), threads=1))
cache = model.new_cache(1, 16)
for tokens in (torch.ones(1, 8, dtype=torch.int64), *[torch.ones(1, 1, dtype=torch.int64)] * 4):
    model(tokens, cache)
print(json.dumps([model.weights.shares.streamed_bytes, peak_rss_bytes()]))
"""
PYTHON = (sys.executable, "-c", RUN)
QBENCH = (sys.executable, "-m", "qbench.cli.main")
BENCH = (*QBENCH, "bench", "-p", "8", "-n", "4", "-r", "1", "--json")

# The kernel ends a process at its limit, and a limit of `--memory` may be missed by so much.
SLACK = 1.05
# Below the named limit. That is 16 MiB more than the refused process needed.
STEP = 32 * MEBI
LAYERS = {"intermediate_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64}
WORDS = {"vocab_size": 128256, "hidden_size": 1024, "num_hidden_layers": 4}  # the head is 139 MB in q8_0
SMALL = "64 layers and 512 words"
LARGE = "128K words"
MIXED = "16 experts"
CONFIGS: dict[str, tuple[Mapping[str, Any], str]] = {  # config, recipe
    SMALL: (SHAPES["tiny"] | LAYERS | {"hidden_size": 512, "num_hidden_layers": 64}, "q4_k_m"),
    LARGE: (SHAPES["tiny"] | LAYERS | WORDS, "q8_0"),
    MIXED: (
        SHAPES["tiny-moe"]
        | LAYERS
        | {"hidden_size": 1024, "num_hidden_layers": 4, "moe_intermediate_size": 1024, "num_experts": 16},
        "q4_k_m",
    ),
}
OTHERS = pytest.mark.exhaustive("each command is three processes, 15 s; every run has the shape whose file needs most")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """143 MB of weights, which is more than a layer and VARIES."""
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    return str(write_artifact(open_source("rand:smollm2-135m"), path, recipe=get_recipe("q8_0")))


def run_at_smallest(command: Callable[[int], Sequence[str]]) -> tuple[Limited, int]:
    """The process at VARIES above the smallest limit that a refusal names, and that limit in bytes.

    command   of a limit in bytes
    A process that has grown since the one that was refused is refused, too, and names a larger limit.
    """
    limit, done = 0, run_within(1 << 30, command(TOO_SMALL))
    for _ in range(3):
        refused = REFUSED.search(done.stderr)
        if done.returncode == 0 or refused is None:
            break
        assert done.stdout == ""
        limit = int(refused[1]) * MEBI + VARIES
        done = run_within(limit, command(limit))
    assert done.returncode == 0, done.stderr
    return done, limit


def test_a_model_runs_within_a_limit_that_it_does_not_fit(model):
    done, limit = run_at_smallest(lambda limit: [*PYTHON, model, str(limit)])
    streamed_bytes, peak_bytes = json.loads(done.stdout)
    assert streamed_bytes > 0
    assert done.peak_bytes <= limit and peak_bytes <= limit


@pytest.mark.exhaustive("it measures the machine")
def test_bench_stays_within_the_smallest_limit_and_records_its_shares(model):
    done, limit = run_at_smallest(lambda limit: [*BENCH, model, "--memory", f"{limit // MEBI}MiB"])
    row = json.loads(done.stdout)
    assert row["offload"]["streamed_bytes"] == row["roofline"]["tg_bytes"]["linears"] > 0
    assert row["peak_rss_bytes"] <= limit and done.peak_bytes <= limit


def wide_tokenizer(vocab_size: int) -> TokenizerInfo:
    """One token per byte, and words that no text has."""
    tokenizer = JsonTokenizer.from_str(byte_level_json())
    num_words = vocab_size - tokenizer.get_vocab_size()
    tokenizer.add_special_tokens([AddedToken(f"<{number}>", special=True) for number in range(num_words)])
    return TokenizerInfo(tokenizer.to_str(), None, vocab_size - 1, add_bos=False)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Callable[[str], Path]:
    """Shape -> a GGUF file of it, made once."""
    folder, files = tmp_path_factory.mktemp("shapes"), {}

    def write(shape: str) -> Path:
        if shape not in files:
            config, recipe = CONFIGS[shape]
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(SHAPES, "limited", config)
                source = RandomSource("rand:limited")
            source.tokenizer = wide_tokenizer(config["vocab_size"])
            path = folder / f"{len(files)}.gguf"
            files[shape] = Path(write_artifact(source, path, recipe=get_recipe(recipe)))
        return files[shape]

    return write


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        pytest.param(LARGE, "bench MODEL -p 0 -n 4 -r 1 --json"),
        pytest.param(SMALL, "bench MODEL -p 0 -n 4 -r 1 --json", marks=OTHERS),
        pytest.param(MIXED, "bench MODEL -p 0 -n 4 -r 1 --json", marks=OTHERS),
        pytest.param(LARGE, "generate MODEL --prompt Once -n 4", marks=OTHERS),
        pytest.param(LARGE, "eval MODEL --text TEXT --windows 1", marks=OTHERS),
        pytest.param(LARGE, "eval MODEL --text TEXT --windows 1 --attention kernel", marks=OTHERS),
    ],
)
def test_every_phase_stays_within_the_smallest_limit(shape, words, written, tmp_path):
    """The file is written, the head is read and the logits are made at the limit that a refusal names."""
    model, text = written(shape), tmp_path / "text.txt"
    text.write_text("All work and no play makes Jack a dull boy. " * 100, encoding="utf-8")
    stream = model.with_name(model.name + SUFFIX)
    stream.unlink(missing_ok=True)
    words = words.replace("MODEL", str(model)).replace("TEXT", str(text))

    def command(limit: int) -> list[str]:
        return [*QBENCH, *words.split(), "--memory", f"{limit // MEBI}MiB"]

    refused = named_limit(run_within(1 << 30, command(TOO_SMALL)))
    below = run_within(1 << 30, command(refused - STEP))
    assert named_limit(below) and not stream.exists()
    done = run_within(int(SLACK * refused), command(refused))
    assert done.returncode == 0, done.stderr
    assert stream.exists()
    if "--json" in words:  # resident memory, which the kernel counts only in part: pages of libraries may give way
        assert json.loads(done.stdout)["peak_rss_bytes"] <= refused


def named_limit(done: Limited) -> int:
    """Bytes of the smallest limit that a refusal names."""
    refused = REFUSED.search(done.stderr)
    assert done.returncode == 2 and done.stdout == "" and refused is not None, done.stderr
    # A busy machine also prints lines of progress.
    assert len([line for line in done.stderr.splitlines() if line.startswith("qbench: ")]) == 1
    assert "Traceback" not in done.stderr
    return int(refused[1]) * MEBI


@pytest.mark.exhaustive("it measures the machine")
def test_a_model_that_fits_is_measured_within_the_limit(written):
    """The bandwidth of memory is measured in 512 MiB, for which there is no room.

    The limit is in the middle: the model takes 600 MiB, and 650 to 680 with other processors; the measurement 1,050.
    """
    model, limit = written(SMALL), 840 * MEBI
    done = run_within(int(SLACK * limit), [*BENCH, str(model), "--memory", f"{limit // MEBI}MiB"])
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert row["offload"]["streamed_bytes"] == 0 and row["roofline"]["bandwidths_bytes_per_s"] == []
