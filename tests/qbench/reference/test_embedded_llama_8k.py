"""ref:llama-8k as the rest of the project meets it: its context, its recall, and the record of its skills."""

import json

import pytest
import torch
from support.close import assert_close
from tokenizers import Tokenizer

from qbench.reference import weights_dir
from qbench.reference.long_tasks import LENGTHS, MEASURED, share_right
from qbench.runtime import load_model
from qbench.sources import open_source
from training.export import load
from training.lengthen import CONTEXT, ROPE_BASE

FOLDER = weights_dir("llama-8k")
MOST_BYTES = 8 * 10**6


@pytest.fixture(scope="module")
def network():
    return load(FOLDER)


def test_it_is_small_and_has_the_long_context():
    assert (FOLDER / "model.safetensors").stat().st_size <= MOST_BYTES
    config = json.loads((FOLDER / "config.json").read_text())
    assert (config["max_position_embeddings"], config["rope_theta"]) == (CONTEXT, ROPE_BASE)
    assert json.loads((FOLDER / "training.json").read_text())["made_from"] == "ref:llama"


def test_it_has_the_tokenizer_of_its_origin():
    assert (FOLDER / "tokenizer.json").read_bytes() == (weights_dir("llama") / "tokenizer.json").read_bytes()


@torch.no_grad()
def test_the_runtimes_logits_are_the_trained_networks():
    """At positions beyond the context of ref:llama, with the frequencies as the runtime and transformers round them."""
    tokens = torch.randint(1536, (1, 1400), generator=torch.Generator().manual_seed(0))
    exact = load(FOLDER)
    frequencies = 1 / ROPE_BASE ** (torch.arange(0, 64, 2).float() / 64)  # [D / 2]
    angles = torch.outer(torch.arange(1400).float(), frequencies).repeat(1, 2)  # [T, D]
    exact.cos, exact.sin = angles.cos(), angles.sin()
    expected = exact(tokens)
    got = load_model(open_source("ref:llama-8k"), impl="reference")(tokens)
    # Two orders of summation of up to 1400 terms a product, one after the other in 4 layers of 4 products.
    assert_close(got, expected, atol=16 * 2**-24 * 1400**0.5 * expected.abs().max().item())


def test_it_recalls_beyond_the_context_of_its_origin(network):
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    assert share_right(network, tokenizer, "recall", 2048, 50) >= 0.96


def test_its_record_has_every_task_and_length():
    report = json.loads((FOLDER / "skills.json").read_text())["by_length"]
    assert report.keys() == MEASURED.keys()
    assert all(set(shares) == {str(length) for length in LENGTHS} for shares in report.values())
    assert all(share >= 0.98 for share in report["recall"].values())
