"""On ref:llama-outliers, which breaks plain W8A8, the methods that know outliers are as good as plain is without."""

from functools import cache
from itertools import islice

import pytest
import torch
from support.calibrated import calibrated

from qbench.harness.kld import divergence
from qbench.reference.corpus import EOS, documents, heldout_text
from qbench.runtime import Tokenizer, load_model
from qbench.sources import open_source
from quant.methods import make_method

OUTLIERS = "ref:llama-outliers"


@cache
def tokens_of(kind: str) -> torch.Tensor:
    """calibration [4, 256], heldout [1, 384] int64"""
    text = heldout_text(num_chars=4000) if kind == "heldout" else "".join(EOS + d for d in islice(documents(5), 40))
    ids = torch.tensor(Tokenizer(open_source(OUTLIERS).tokenizer).encode(text))
    return ids[:384].view(1, 384) if kind == "heldout" else ids[:1024].view(4, 256)


@cache
def exact_logits() -> torch.Tensor:
    return load_model(open_source(OUTLIERS), impl="reference")(tokens_of("heldout"))[0]


@cache
def mean_kld(spec: str, method: str, format_name: str) -> float:
    """Of the model with its linears quantized; the rest in float32."""
    made = calibrated(open_source(spec), tokens_of("calibration"), make_method(method, {}), lambda name: format_name)
    logits = load_model(made)(tokens_of("heldout"))[0]
    return float(divergence(logits, exact_logits(), tokens_of("heldout")[0]).kld.mean())


def plain_without_outliers() -> float:
    return mean_kld("ref:llama", "rtn", "w8a8")


@pytest.mark.parametrize("format_name, factor", [("w8a8", 100), ("w8a8-wtensor-atensor", 1000)])
def test_outliers_break_plain_int8(format_name, factor):
    assert mean_kld(OUTLIERS, "rtn", format_name) > factor * plain_without_outliers()


@pytest.mark.parametrize("method, format_name", [("smoothquant", "w8a8"), ("llm-int8", "llm-int8")])
def test_methods_for_outliers_are_as_good_as_plain_without_them(method, format_name):
    assert mean_kld(OUTLIERS, method, format_name) < 2 * plain_without_outliers()


def test_static_activations_come_back_too():
    assert mean_kld(OUTLIERS, "smoothquant", "w8a8-astatic") < 0.05 * mean_kld(OUTLIERS, "rtn", "w8a8-wtensor-atensor")
