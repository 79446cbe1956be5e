"""Log-likelihoods by shared contexts and batches: each equals a plain pass over its own tokens."""

import random

import pytest
import torch
from support.close import assert_close
from support.memory_source import MemorySource

from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.tasks.scoring import FORWARD_TOKENS, SHARED_CONTEXT, Forward, Request, group_requests, run_forward
from quant.kv import KV_FORMATS
from quant.kv.source import KVSource

VOCAB = 320
CALIBRATED = [name for name, fmt in KV_FORMATS.items() if fmt.calibrated]  # need an artifact's scales


def some_requests() -> list[Request]:
    """Unequal lengths: contexts of 1 to 131 tokens, some of them shared, continuations of 1 to 63."""
    rng = random.Random(0)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(VOCAB) for _ in range(count))

    requests = []
    for num_context in (1, 1, 1, 3, SHARED_CONTEXT - 1, SHARED_CONTEXT, 63, 131):
        context = tokens(num_context)
        requests += [Request(context, tokens(rng.choice((1, 1, 2, 3, 63)))) for _ in range(4)]
    return requests + requests[:3]


def loglikelihood_ref(model, request: Request) -> tuple[float, bool]:
    """One token after another, nothing cached"""
    row = torch.tensor([request.context + request.continuation])
    log_probs = torch.log_softmax(model(row)[0].double(), dim=-1)  # [T, V]
    total, greedy = 0.0, True
    for at in range(len(request.context), row.shape[1]):
        total += log_probs[at - 1, row[0, at]].item()
        greedy &= log_probs[at - 1].argmax() == row[0, at]
    return total, bool(greedy)


def answers_of(model, requests, **options):
    forwards = group_requests(requests, VOCAB, **options)
    return dict(pair for work in forwards for pair in run_forward(model, work))


@pytest.fixture(scope="module")
def model():
    return load_model(MemorySource())


@pytest.mark.parametrize("share", [True, False])
def test_every_distinct_request_is_planned_once(share):
    requests = some_requests()
    forwards = group_requests(requests, VOCAB, share=share)
    planned = [request for work in forwards for request in work.requests]
    assert len(planned) == len(set(planned)) and set(planned) == set(requests)
    for work in forwards:
        assert len({len(context) for context in work.contexts}) == 1
        assert all(len({len(tokens) for tokens in continuations}) == 1 for continuations in work.rounds)
        assert len(work.contexts) == 1 or len(work.contexts) * len(work.contexts[0]) <= FORWARD_TOKENS
    lengths = [len(work.contexts[0]) + len(work.rounds[0][0]) for work in forwards]
    assert lengths == sorted(lengths, reverse=True)


def test_a_long_context_is_read_once_for_all_its_answers():
    context = tuple(range(SHARED_CONTEXT))
    answers = [(1,), (2,), (3, 4)]
    requests = [Request(context, answer) for answer in answers] + [Request(context[1:], answer) for answer in answers]
    shared, *others = group_requests(requests, VOCAB)
    assert shared == Forward([context], [[(3, 4)], [(1,)], [(2,)]])
    assert [len(work.contexts) for work in others] == [1, 2], "shorter ones side by side, as far as they are alike"


@pytest.mark.parametrize("share", [True, False])
def test_equals_a_plain_loop(model, share):
    requests = some_requests()
    answers = answers_of(model, requests, share=share)
    for request in requests:
        value, greedy = loglikelihood_ref(model, request)
        # two logits a token, each of 128 products through 2 layers
        assert_close(answers[request].loglikelihood, value, atol=len(request.continuation) * 2 * 2.0**-23 * 128 * 2)
        assert answers[request].greedy == greedy


@pytest.mark.parametrize("kv", [None, *(name for name in KV_FORMATS if name not in CALIBRATED)])
def test_earlier_requests_leave_nothing_in_the_cache(kv):
    """A cache that went back to the end of a context answers to the bit like one that just read it."""
    source = MemorySource() if kv is None else KVSource(MemorySource(), kv)
    model = load_model(source)
    requests = [request for request in some_requests() if len(request.context) == 63]
    groups = 1 if kv is None else max(side.token_group for side in (model.kv.format.keys, model.kv.format.values))
    together = answers_of(model, requests, share=groups == 1)
    alone = {}
    for request in requests:
        alone |= answers_of(model, [request], share=groups == 1)
    assert together == alone


@pytest.mark.parametrize("policy", ["recent:16", "snapkv:budget=24,window=8", "h2o:20"])
def test_a_policy_evicts_earlier_context_too(policy):
    """A cache that went back to a context answers to the bit like one that just read it, evictions included."""
    model = load_model(MemorySource(), RunOptions(policy=policy, prefill_chunk=32))
    requests = [request for request in some_requests() if len(request.context) == 63]
    together = answers_of(model, requests)
    alone = {}
    for request in requests:
        alone |= answers_of(model, [request])
    assert together == alone
    assert together != answers_of(load_model(MemorySource()), requests)


def test_logits_that_are_not_finite_are_reported():
    source = MemorySource()
    source.weights["lm_head.weight"][:] = float("nan")
    request = Request((1, 2), (3, 4))
    answer = answers_of(load_model(source), [request])[request]
    assert answer.loglikelihood == float("-inf")
