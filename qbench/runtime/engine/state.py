"""RequestState: one request on its way through the engine."""

import math

from qbench.runtime.caches.pages import PagedSequence
from qbench.runtime.engine.hash_chain import HashChain
from qbench.runtime.engine.prefix_tree import Prefix
from qbench.runtime.engine.request import Request
from qbench.runtime.engine.stored_prefixes import Loading
from qbench.runtime.engine.swap_space import Swapped
from qbench.runtime.text.sampling import Sampler
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
