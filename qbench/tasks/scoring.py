"""Log-likelihoods of continuations: each context is read once, whatever follows it, through the model's own cache."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.quality.protocols.forward import Outputs, pieces
from qbench.quality.protocols.perplexity import token_nll
from qbench.runtime.decoder_model import DecoderModel
from qbench.tasks.questions import parts_between

# Contexts of so many tokens are read once for all that follows them. A forward pass over fewer tokens takes hardly
# longer than over one, since it waits for the weights: there it is better to read several contexts side by side.
SHARED_CONTEXT = 32
# A forward pass, its cache and its logits: enough for two cores (512 tokens of a 128k vocabulary: 262 MB).
FORWARD_TOKENS = 512
LOGITS_BYTES = 256 << 20

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """What is the log-likelihood of `continuation` after `context`? Neither is empty.

    cuts   tokens of the context after which a forward pass ends, so that a policy compresses there
    """

    context: Tokens
    continuation: Tokens
    cuts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    loglikelihood: float  # nats, summed over the continuation; -inf where logits are not finite
    greedy: bool  # whether every token of the continuation is the likeliest one


@dataclass(frozen=True, slots=True)
class Forward:
    """Contexts read together, then rounds of continuations that follow them, one of each context a round.

    contexts   [B] of one length
    rounds     [B] continuations each, of one length within a round
    cuts       of each context
    """

    contexts: list[Tokens]
    rounds: list[list[Tokens]]
    cuts: tuple[int, ...] = ()

    @property
    def requests(self) -> Iterator[Request]:
        for continuations in self.rounds:
            for context, continuation in zip(self.contexts, continuations, strict=True):
                yield Request(context, continuation, self.cuts)


def group_requests(requests: Sequence[Request], vocab_size: int, *, share: bool = True) -> list[Forward]:
    """Forward passes that hold each distinct request once, the longest first, so that a pass that is too large fails at
    once.

    share   whether a cache may go back to the end of its context
    """
    continuations: dict[tuple[Tokens, tuple[int, ...]], set[Tokens]] = defaultdict(set)
    for request in requests:
        continuations[request.context, request.cuts].add(request.continuation)
    forwards: list[Forward] = []
    alike: dict[tuple[int, int, tuple[int, ...]], list[Request]] = defaultdict(list)
    for (context, cuts), following in continuations.items():
        if share and len(following) > 1 and len(context) >= SHARED_CONTEXT:
            rounds = [[tokens] for tokens in sorted(following, key=_longest_first)]
            forwards.append(Forward([context], rounds, cuts))
            continue
        for tokens in following:
            alike[len(context), len(tokens), cuts].append(Request(context, tokens, cuts))
    for (num_context, num_tokens, cuts), group in alike.items():
        group.sort(key=lambda request: (request.context, request.continuation))
        step = batch_size(num_context + num_tokens, num_tokens, vocab_size)
        for start in range(0, len(group), step):
            batch = group[start : start + step]
            forwards.append(Forward([r.context for r in batch], [[r.continuation for r in batch]], cuts))
    return sorted(forwards, key=lambda p: (-len(p.contexts[0]) - len(p.rounds[0][0]), p.contexts, p.rounds))


def batch_size(num_tokens: int, num_scored: int, vocab_size: int) -> int:
    """Sequences of num_tokens, num_scored of them with logits, that a forward pass takes."""
    return max(1, min(FORWARD_TOKENS // num_tokens, LOGITS_BYTES // (4 * num_scored * vocab_size)))


@torch.inference_mode()
def run_forward(model: DecoderModel, work: Forward) -> Iterator[tuple[Request, Answer]]:
    """The answers of a forward pass's requests.

    Logits are computed from the context's last token on: a large vocabulary costs as much as many layers.
    """
    num_context = len(work.contexts[0])
    longest = max(len(continuations[0]) for continuations in work.rounds)
    cache = model.new_cache(len(work.contexts), num_context + longest)
    first = read_in_parts(model, torch.tensor(work.contexts), work.cuts, cache)  # [B, 1, V]
    if len(work.rounds) > 1:
        cache.mark()
    for continuations in work.rounds:
        tokens = torch.tensor(continuations)  # [B, L]
        nll, likeliest = (each[:, None] for each in score(first[:, 0], tokens[:, 0]))
        if tokens.shape[1] > 1:
            cache.truncate(num_context)
            outputs, targets = Outputs.of(model, tokens[:, :-1], cache), tokens[:, 1:].flatten()
            parts = [score(outputs.logits(part), targets[part]) for part in pieces(0, len(targets), first.shape[-1])]
            rest = [np.concatenate(each).reshape(len(tokens), -1) for each in zip(*parts, strict=True)]
            nll, likeliest = np.concatenate([nll, rest[0]], 1), np.concatenate([likeliest, rest[1]], 1)  # [B, L]
        answers = [Answer(-float(row.sum()), bool(same.all())) for row, same in zip(nll, likeliest, strict=True)]
        for context, continuation, answer in zip(work.contexts, continuations, answers, strict=True):
            yield Request(context, continuation, work.cuts), answer


def read_in_parts(model: DecoderModel, tokens: Tensor, cuts: Sequence[int], cache: Any) -> Tensor:
    """Logits [B, 1, V] after the last of tokens [B, T]; a forward pass ends at each cut."""
    logits = [model(tokens[:, part], cache, last_only=True) for part in parts_between(tokens.shape[1], cuts)]
    return logits[-1]


def score(logits: Tensor, tokens: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Negative log-likelihoods [N] float64, nats, and whether each token is the likeliest one [N].

    logits   [N, V] float32
    tokens   [N] int64 that they predict
    """
    return token_nll(logits, tokens), (logits.argmax(-1) == tokens).numpy()


def _longest_first(tokens: Tokens) -> tuple[int, Tokens]:
    return -len(tokens), tokens
