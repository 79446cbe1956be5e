"""The skill measures on models whose skill is known, and the embedded model's skills."""

import copy
from random import Random

import pytest
import torch
from tokenizers import Tokenizer

from qbench.reference import MODELS, skills, weights_dir
from qbench.reference.corpus import heldout_text
from quant.errors import InputError
from training.export import load
from training.model import Llama


def induction(vocab_size: int):
    """A model that answers with the token after the last earlier occurrence of the present token."""

    def model(tokens):
        logits = torch.zeros(*tokens.shape, vocab_size)
        for row, ids in enumerate(tokens.tolist()):
            last = {}
            for i, token in enumerate(ids):
                if i:
                    last[ids[i - 1]] = token
                if token in last:
                    logits[row, i, last[token]] = 10.0
        return logits

    return model


def indifferent(vocab_size: int):
    return lambda tokens: torch.zeros(*tokens.shape, vocab_size)


@pytest.mark.parametrize(
    "distance, context", [*((distance, skills.RECALL_CONTEXT) for distance in skills.DISTANCES), (4000, 8100)]
)
def test_needle_is_at_the_wanted_distance(tokenizer, distance, context):
    rng = Random(distance)
    for _ in range(5):
        tokens, answer = skills.needle(rng, tokenizer, distance, context)
        words = [tokenizer.id_to_token(token) for token in tokens]
        assert len(tokens) == context
        assert words[-2] == "get" and tokens.count(tokens[-1]) == 2
        value_at = len(tokens) - distance
        assert tokens[value_at] == answer
        assert words[value_at - 2] == "set" and tokens[value_at - 1] == tokens[-1]


def test_only_induction_recalls(tokenizer):
    size = tokenizer.get_vocab_size()
    assert skills.recall_at(induction(size), tokenizer, 768, count=8) == 1.0
    assert skills.recall_at(indifferent(size), tokenizer, 768, count=8) == 0.0


def test_indifference_scores_the_vocabulary(tokenizer):
    size = tokenizer.get_vocab_size()
    report = skills.skill_report(indifferent(size), tokenizer, skills.Sizes(10, 8, 10, 3000, 50))
    assert report["perplexity"]["mixed"] == pytest.approx(size, rel=2**-18)
    assert report["trigram_perplexity"]["mixed"] < 100
    assert report["arithmetic"] == 0.0 and report["minimal_pairs"] == 0.0  # a tie is not right
    assert "recall by distance" in skills.render(report)


def test_unknown_model_suggests_the_nearest():
    with pytest.raises(InputError, match="ref:llama"):
        weights_dir("lama")
    assert set(MODELS) == {"llama", "llama-8k", "llama-outliers", "mla-moe"}


SLOW = pytest.mark.exhaustive("a quarter of a minute; the model changes only if it is trained again")


@pytest.fixture(scope="module", params=["llama", *(pytest.param(name, marks=SLOW) for name in ("llama-8k", "mla-moe"))])
def embedded(request):
    try:
        folder = weights_dir(request.param)
    except InputError as reason:
        pytest.skip(str(reason))
    return load(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_embedded_tokenizer_matches_its_code(embedded, tokenizer):
    assert embedded[1].to_str() == tokenizer.to_str()


@SLOW
def test_embedded_model_has_its_skills(embedded):
    report = skills.skill_report(*embedded, skills.QUICK)
    assert report["minimal_pairs"] >= 0.95
    # Four items a distance: one miss is bad luck, two are not.
    assert all(share >= 0.75 for share in report["recall"].values()), report["recall"]
    assert report["arithmetic"] >= 0.9
    assert report["closing_brackets"] >= 0.9
    assert report["perplexity"]["mixed"] < 0.5 * report["trigram_perplexity"]["mixed"]


@torch.no_grad()
def fake_quantize(model: Llama, bits: int, group_size: int = 128) -> Llama:
    """A copy whose linears are rounded to nearest, symmetric, one scale a group of input features."""
    rounded = copy.deepcopy(model)
    qmax = 2 ** (bits - 1) - 1
    for module in rounded.modules():
        if isinstance(module, torch.nn.Linear):
            groups = module.weight.unflatten(1, (-1, group_size))  # [N, K / group_size, group_size]
            scale = groups.abs().amax(-1, keepdim=True) / qmax
            module.weight.copy_(((groups / scale).round() * scale).flatten(1))
    return rounded


@torch.no_grad()
def test_quality_moves_with_precision(embedded):
    model, tokenizer = embedded
    tokens = torch.tensor(tokenizer.encode(heldout_text(None, 12_000)).ids[:2048]).view(2, 1024)
    expected = model(tokens).log_softmax(-1)
    kld = {}
    for bits in (8, 4, 2):
        got = fake_quantize(model, bits)(tokens).log_softmax(-1)
        kld[bits] = (expected.exp() * (expected - got)).sum(-1).mean().item()
    assert kld[4] >= 20 * kld[8]
    assert kld[2] > 0.5  # broken: half a nat a token
