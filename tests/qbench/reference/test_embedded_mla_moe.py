"""ref:mla-moe as the rest of the project meets it: through sources, recipes and the runtime."""

import pytest
import torch
from support.close import assert_close
from tokenizers import Tokenizer

from qbench.reference import weights_dir
from qbench.reference.corpus import heldout_text
from qbench.runtime import load_model
from qbench.sources import open_source
from quant.job import make_job
from quant.recipes import get_recipe
from training.export import load

MOST_BYTES = 16 * 10**6


@pytest.fixture(scope="module")
def source():
    return open_source("ref:mla-moe")


def test_it_is_small():
    assert (weights_dir("mla-moe") / "model.safetensors").stat().st_size <= MOST_BYTES


@torch.no_grad()
def test_the_runtimes_logits_are_the_trained_networks(source):
    tokens = torch.randint(1536, (2, 300), generator=torch.Generator().manual_seed(0))
    expected = load(weights_dir("mla-moe"))(tokens)
    got = load_model(source, impl="reference")(tokens)
    # Two orders of summation of up to 768 terms a product, one after the other in 4 layers of 4 products.
    assert_close(got, expected, atol=16 * 2**-24 * 768**0.5 * expected.abs().max().item())


@torch.no_grad()
def test_every_expert_is_used(source):
    network = load(weights_dir("mla-moe"))
    tokens = Tokenizer.from_str(source.tokenizer.json).encode(heldout_text(None, 12_000)).ids[:2048]
    network(torch.tensor(tokens).view(2, 1024))
    for experts in network.routed:
        shares = experts.counts / experts.counts.sum()
        assert shares.min() > 0.25 / 8 and shares.max() < 4 / 8  # a quarter and four times an even share


@pytest.mark.parametrize("recipe", ["q4_k_m", "q3_k_m", "q8_0", "rtn-w8", "gptq-w4g128"])
def test_recipes_fit_it_and_k_quants_pass_by_short_rows(source, recipe):
    formats = {name: info.format for name, info in make_job(source, get_recipe(recipe)).foreseen_tensors().items()}
    short = {formats[name] for name in formats if "kv_b_proj" in name}
    assert not any("_k" in name for name in short) and short
    if recipe.endswith("k_m"):
        assert any("_k" in formats[name] for name in formats if "experts" in name)
