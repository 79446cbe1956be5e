"""RequestState: one request on its way through the engine."""

import math

from torch import Tensor

from qbench.runtime.caches.places.pages import PagedSequence
from qbench.runtime.engine.hash_chain import HashChain
from qbench.runtime.engine.prefix_tree import Prefix
from qbench.runtime.engine.request import Event, Request
from qbench.runtime.engine.stored_prefixes import Loading
from qbench.runtime.engine.swap_space import Swapped
from qbench.runtime.text.sampling import LogProbabilities, Sampler, log_probabilities
from qbench.runtime.text.stop_strings import StoppingStream


class RequestState:
    """State of a request: it waits without a sequence, and runs with one.

    id         in order of arrival
    tokens     prompt and text so far; those before `sequence.seq_len` are computed
    keeps      whether its pages may be kept for others: not if they were computed before its version was forgotten
    since      when the oldest of its pages was computed, be it by another request
    overtaken  later requests that were started before it
    num_stored  leading pages of the sequence that the block store holds, or is about to
    touched_at  when the store last heard that they are used
    loading    pages that come from the block store; the request computes nothing until they are there
    swapped    its pages from before it was preempted, None if they must be computed again
    scores     of the tokens of its prompt after the first one, as far as they are computed
    """

    __slots__ = (
        "chain",
        "id",
        "keeps",
        "loading",
        "num_shared",
        "num_stored",
        "overtaken",
        "request",
        "sampler",
        "scores",
        "sequence",
        "since",
        "stream",
        "swapped",
        "tokens",
        "touched_at",
    )

    def __init__(self, id: int, request: Request, page_size: int, stream: StoppingStream | None) -> None:
        self.id = id
        self.request = request
        self.tokens = list(request.tokens)
        self.chain = HashChain(page_size, request.version)
        self.sampler = Sampler(request.sampling)
        self.stream = stream
        self.sequence: PagedSequence | None = None
        self.num_shared = 0  # pages of the sequence that the prefix tree holds, too
        self.num_stored = 0
        self.touched_at = -math.inf
        self.loading: Loading | None = None
        self.since = 0.0
        self.keeps = True
        self.overtaken = 0
        self.swapped: Swapped | None = None
        self.scores: list[LogProbabilities] = []

    @property
    def num_computed(self) -> int:
        return 0 if self.sequence is None else self.sequence.seq_len

    @property
    def pending(self) -> int:
        """Tokens still to compute: 1 in decoding, more in the prompt or after a preemption."""
        return len(self.tokens) - self.num_computed

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - len(self.request.tokens)

    @property
    def is_scoring(self) -> bool:
        """Whether tokens of the prompt still need their scores: those are computed from the token before."""
        return self.request.scores_prompt and len(self.scores) < len(self.request.tokens) - 1

    def score(self, logits: Tensor, first: int) -> None:
        """Add the scores of the prompt's tokens up to first + T. logits: [T, V] of the tokens from first on"""
        top = self.request.logprobs or 0
        for row, token in zip(logits, self.request.tokens[first + 1 :], strict=False):
            first += 1
            if first == len(self.scores) + 1:
                self.scores.append(log_probabilities(row, token, top))

    def scored_prompt(self) -> tuple[Event, ...]:
        """An event per token of a prompt that was to be scored."""
        if not self.request.scores_prompt:
            return ()
        start, *rest = self.request.tokens
        scored = zip(rest, self.scores, strict=True)
        events = (Event(self.id, "token", token, None, score.chosen, score.top) for token, score in scored)
        return Event(self.id, "token", start), *events

    def start(self, sequence: PagedSequence, prefix: Prefix) -> None:
        """Run in an empty sequence behind a prefix, whose pages are the state's from here on."""
        self.sequence = sequence
        sequence.pages = prefix.pages
        sequence.seq_len = prefix.num_tokens
        self.num_shared = prefix.num_tokens // sequence.pool.page_size
        self.since = prefix.stored_at if self.swapped is None else min(self.since, prefix.stored_at)
        self.keeps |= self.swapped is None

    def stop(self) -> None:
        """Give all pages back."""
        if self.sequence is not None:
            self.sequence.release()
            self.sequence = None
        self.num_shared = 0
        self.num_stored = 0
