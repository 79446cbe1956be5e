"""`lm-eval-word` and `lm-eval-byte` against lm-eval's own hf model and metrics on the same documents."""

import pytest
from support.close import assert_close
from support.data import SHARED, STORIES260K, TINYSTORIES_VALID, needs_stories, needs_tinystories
from support.hf_task_model import hf_task_model
from support.measuring import evaluated

from qbench.quality.protocols.documents import read_passage

PROTOCOLS = ["lm-eval-word", "lm-eval-byte"]
WIKITEXT = SHARED / "corpora" / "wikitext-2-raw" / "wiki.valid.raw"
# Both sum float32 logits of width 64 through 5 layers. A perplexity by the word is exp of some 20 nats, and a nat is a
# mean over thousands of tokens of errors that cancel.
CLOSE = 2.0**-23 * 64 * 5 * 20


def request(text: str):
    from lm_eval.api.instance import Instance

    return Instance("loglikelihood_rolling", {}, (text,), 0)


def lm_evals_own(passage) -> dict[str, float]:
    """word_perplexity, byte_perplexity, bits_per_byte, from lm-eval's model, word count and aggregation."""
    hf = hf_task_model(STORIES260K)
    from lm_eval.api.registry import AGGREGATION_REGISTRY
    from lm_eval.tasks.wikitext.preprocess_wikitext import process_results

    texts = [document.text for document in passage.documents]
    requests = [request(text) for text in texts]
    scores = hf.loglikelihood_rolling(requests, disable_tqdm=True)
    counted = [process_results({"page": text}, (score,)) for text, score in zip(texts, scores, strict=True)]
    aggregate = {
        "word_perplexity": AGGREGATION_REGISTRY["weighted_perplexity"],
        "byte_perplexity": AGGREGATION_REGISTRY["weighted_perplexity"],
        "bits_per_byte": AGGREGATION_REGISTRY["bits_per_byte"],
    }
    return {name: how([item[name] for item in counted]) for name, how in aggregate.items()}


def check(path, text: str, how: str | None = None) -> None:
    path.write_text(text, encoding="utf-8")
    theirs = lm_evals_own(read_passage(text, how))
    ours = evaluated(str(STORIES260K), text=path, protocols=PROTOCOLS, documents=how)["protocols"]
    assert_close(ours["lm-eval-word"]["perplexity"], theirs["word_perplexity"], rtol=CLOSE)
    assert_close(ours["lm-eval-byte"]["perplexity"], theirs["byte_perplexity"], rtol=CLOSE)
    for told in ours.values():
        assert_close(told["bits_per_byte"], theirs["bits_per_byte"], rtol=CLOSE)


@needs_stories
@needs_tinystories
@pytest.mark.parametrize(
    "how", [pytest.param(None, id="many short documents"), pytest.param("whole", id="one document of many windows")]
)
def test_perplexity_by_word_and_byte_is_lm_evals(tmp_path, how):
    check(tmp_path / "text.txt", TINYSTORIES_VALID.read_text(encoding="utf-8")[:5000], how)


@needs_stories
@pytest.mark.skipif(not WIKITEXT.exists(), reason="shared/data/corpora/wikitext-2-raw is absent")
def test_wikitext_is_detokenized_and_counted_as_written(tmp_path):
    hf = hf_task_model(STORIES260K)
    from lm_eval.tasks.wikitext.preprocess_wikitext import process_results, wikitext_detokenizer

    page = WIKITEXT.read_text(encoding="utf-8")[:2500]
    (tmp_path / "wiki.raw").write_text(page, encoding="utf-8")
    score = hf.loglikelihood_rolling([request(wikitext_detokenizer({"page": page}))], disable_tqdm=True)
    log_likelihood, words = process_results({"page": page}, score)["word_perplexity"]
    settings = {"text": tmp_path / "wiki.raw", "protocols": ["lm-eval-word"], "documents": "wikitext"}
    ours = evaluated(str(STORIES260K), **settings)
    assert ours["num_words"] == words and ours["protocol"]["documents"] == "wikitext"
    assert_close(ours["nll"] * ours["num_tokens"], -log_likelihood, rtol=CLOSE)
