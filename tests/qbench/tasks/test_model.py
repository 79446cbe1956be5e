"""TaskModel against lm-eval's own `hf` model on the same weights, request by request."""

import pytest
from lm_eval.api.instance import Instance
from support.close import assert_close
from support.data import STORIES260K, needs_stories
from support.hf_task_model import hf_task_model

from qbench.tasks.model import TaskModel
from quant.errors import InputError

STORY = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "


def instances(kind: str, arguments: list[tuple]) -> list[Instance]:
    return [Instance(kind, {}, args, index) for index, args in enumerate(arguments)]


def error_of(num_tokens: int, width: int = 64, num_layers: int = 5) -> float:
    """Both add float32 products of `width` through the layers; a token's log-probability takes it from two logits."""
    return num_tokens * 2 * 2.0**-23 * width * num_layers


# Contexts: empty, shared by several, longer than the model's, ending in spaces, beginning with BOS's own text.
PAIRS = [
    ("", "The guard trusts the farmer."),
    ("", "The guard trust the farmer."),
    ("The guard", " trusts"),
    ("The guard", " trust the farmers"),
    ("The guard  ", "trusts"),
    ("<|endoftext|>The guard", " trusts"),
    *((STORY * 2, answer) for answer in (" yes", " no", " a", " park and the sun", " a")),
    *((STORY * 30, answer) for answer in (" yes", " Lily went home.")),
]


@pytest.fixture(scope="module", params=["random", pytest.param("stories", marks=needs_stories)])
def both(request, random_model, task_model):
    """Ours and theirs"""
    folder = random_model if request.param == "random" else STORIES260K
    return task_model(folder), hf_task_model(folder)


def test_loglikelihoods_equal_hf(both):
    ours, theirs = (lm.loglikelihood(instances("loglikelihood", PAIRS)) for lm in both)
    num_tokens = max(len(both[0].tok_encode(continuation)) for _, continuation in PAIRS)
    assert_close([value for value, _ in ours], [value for value, _ in theirs], atol=error_of(num_tokens))
    assert [greedy for _, greedy in ours] == [greedy for _, greedy in theirs]
    assert both[0].truncated == 2


def test_rolling_loglikelihoods_equal_hf(both):
    texts = [(STORY,), (STORY * 30,), ("a",)]
    ours, theirs = (lm.loglikelihood_rolling(instances("loglikelihood_rolling", texts)) for lm in both)
    for got, expected, (text,) in zip(ours, theirs, texts, strict=True):
        assert_close(got, expected, atol=error_of(len(both[0].tok_encode(text))))


def test_greedy_text_equals_hf(both):
    limit = {"max_gen_toks": 40, "do_sample": False}
    asked = [
        (STORY, {"until": ["\n\n", " t"], **limit}),
        (STORY, {"until": [], **limit}),
        (STORY * 30, {"until": ["."], **limit}),
        ("Tom", {"until": ["e s"], "max_gen_toks": 24, "temperature": 0.0}),
        ("Tom", {**limit, "num_beams": 1, "repetition_penalty": 1.0}),
    ]
    ours, theirs = (lm.generate_until(instances("generate_until", asked)) for lm in both)
    assert ours == theirs
    assert ours[1].startswith(ours[0]) and len(ours[0]) < len(ours[1]), "the stop text ends the answer and is no part"


@pytest.fixture(scope="module")
def small(random_model, task_model) -> TaskModel:
    return task_model(random_model)


def test_a_request_has_the_same_answer_in_any_company(small):
    alone = [small.loglikelihood(instances("loglikelihood", [pair]))[0] for pair in PAIRS]
    together = small.loglikelihood(instances("loglikelihood", PAIRS))
    assert [greedy for _, greedy in alone] == [greedy for _, greedy in together]
    # A product over few tokens may add in another order than one over many.
    assert_close([value for value, _ in together], [value for value, _ in alone], atol=error_of(20, num_layers=2))


def test_sampled_repeats_differ_and_a_second_run_repeats_them(small):
    asked = instances("generate_until", [("Tom", {"do_sample": True, "temperature": 1.0, "max_gen_toks": 12})] * 3)
    texts = small.generate_until(asked)
    assert len(set(texts)) == 3 and small.generate_until(asked) == texts


def test_progress_and_caches_hear_of_every_answer(small):
    told, kept = [], []
    small.progress = lambda *state: told.append(state)
    small.cache_hook.add_partial = lambda kind, args, answer: kept.append((kind, args, answer))
    answers = small.loglikelihood(instances("loglikelihood", PAIRS))
    distinct = len(set(PAIRS))
    assert told[-1] == (distinct - 1, distinct - 1, "continuations"), "two contexts are the same tokens"
    assert sorted((args, answer) for _, args, answer in kept) == sorted(zip(PAIRS, answers, strict=True))
    small.progress = None
    del small.cache_hook.add_partial


@pytest.mark.parametrize(
    "options, part",
    [({"num_beams": 4}, "num_beams"), ({"max_gen_toks": 128}, "128"), ({"max_gen_toks": 0}, "max_gen_toks")],
)
def test_requests_that_cannot_be_generated_are_refused(small, options, part):
    with pytest.raises(InputError, match=part):
        small.generate_until(instances("generate_until", [("Tom", {"until": ["."], **options})]))


def test_a_continuation_longer_than_the_context(small):
    with pytest.raises(InputError, match="context holds 128"):
        small.loglikelihood(instances("loglikelihood", [("", STORY * 20)]))
