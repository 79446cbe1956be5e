"""Prompts that come back before the text, with log-probabilities: lm-eval's `local-completions` scores by them."""

import pytest
import torch
from lm_eval.models.openai_completions import LocalCompletionsAPI
from support.tiny_server import running, tiny_subject

from qbench.run.options import RunOptions
from qbench.runtime import Tokenizer, load_model
from qbench.runtime.engine import EngineOptions

PROMPT = "Once upon a time there was a small engine \N{LATIN SMALL LETTER E WITH ACUTE}"
GREEDY = {"model": "tiny", "temperature": 0}


@pytest.fixture(scope="module")
def subject():
    return tiny_subject()


@pytest.fixture(scope="module")
def tokens(subject) -> list[int]:
    return Tokenizer(subject.source.tokenizer).encode(PROMPT)


@pytest.fixture(scope="module")
def scores(subject, tokens) -> torch.Tensor:
    """[T, V] log-probabilities of the tokens that follow each token of the prompt"""
    model = load_model(subject.source, RunOptions(compute="exact"))
    return torch.log_softmax(model(torch.tensor([tokens]))[0].double(), dim=-1)


@pytest.fixture(scope="module")
def chunked():
    """Prompts take several steps here."""
    with running(tiny_subject(), EngineOptions(num_pages=128, max_batch=8, prefill_chunk=16)) as it:
        yield it


def parts_of(got, stream: bool) -> tuple[str, list]:
    """Text and log-probabilities of the first choice, whole or in chunks."""
    choices = [chunk.choices[0] for chunk in got] if stream else [got.choices[0]]
    return "".join(one.text for one in choices), [one.logprobs for one in choices if one.logprobs is not None]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("max_tokens", [0, 3])
def test_the_prompt_is_scored_as_the_model_scores_it(chunked, tokens, scores, stream, max_tokens):
    asked = GREEDY | {"prompt": PROMPT, "max_tokens": max_tokens, "echo": True, "logprobs": 2, "stream": stream}
    for _ in range(2):  # the second time its prefix is shared, and still scored
        text, parts = parts_of(chunked.client().completions.create(**asked), stream)
        found = [score for part in parts for score in part.token_logprobs]
        tops = [top for part in parts for top in part.top_logprobs]
        names = [name for part in parts for name in part.tokens]
        assert found[0] is None and tops[0] is None
        expected = scores[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])]
        assert found[1 : len(tokens)] == pytest.approx(expected.tolist(), abs=1e-5)
        assert [max(top.values()) for top in tops[1 : len(tokens)]] == pytest.approx(
            scores[:-1].amax(1).tolist(), abs=1e-5
        )
        assert len(found) == len(tokens) + max_tokens and text.startswith(PROMPT)
        assert "".join(names) == text or max_tokens  # the last character of an answer may remain incomplete
        assert [offset for part in parts for offset in part.text_offset] == [
            sum(map(len, names[:index])) for index in range(len(names))
        ]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_without_log_probabilities_only_the_text_is_returned(server, stream):
    asked = GREEDY | {"prompt": [PROMPT, "x"], "max_tokens": 2, "stream": stream}
    plain, echoed = (server.client().completions.create(**asked, echo=echo) for echo in (False, True))
    texts = []
    for got in (plain, echoed):
        chunks = [got] if not stream else list(got)
        choices = [choice for chunk in chunks for choice in chunk.choices]
        texts.append(["".join(one.text for one in choices if one.index == index) for index in range(2)])
        assert all(one.logprobs is None for one in choices)
    assert texts[1] == [PROMPT + texts[0][0], "x" + texts[0][1]]
    nothing = server.client().completions.create(**GREEDY, prompt="x", max_tokens=0, echo=True)
    assert (nothing.choices[0].text, nothing.choices[0].logprobs, nothing.usage.completion_tokens) == ("x", None, 0)


def test_lm_eval_reads_the_score_of_a_continuation(server, tokens, scores):
    """lm-eval's own reader, and the body that its `local-completions` sends."""
    asked = {"prompt": [tokens, tokens], "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
    answer = server.client().completions.create(**GREEDY, **asked).model_dump()
    contexts = [len(tokens) - 5, 3]
    found = LocalCompletionsAPI.parse_logprobs(answer, tokens=[tokens, tokens], ctxlens=contexts)
    for (score, is_greedy), length in zip(found, contexts, strict=True):
        rows, wanted = scores[length - 1 : -1], torch.tensor(tokens[length:])
        assert score == pytest.approx(float(rows[torch.arange(len(wanted)), wanted].sum()), abs=1e-4)
        assert is_greedy == bool((rows.argmax(1) == wanted).all())
