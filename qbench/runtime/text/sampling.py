"""From logits to the next token: nudged, then greedy, or drawn from a tempered, cut distribution."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quant.errors import InputError

MOST_PENALTY, MOST_BIAS = 2.0, 100.0  # OpenAI's ranges


@dataclass(frozen=True, slots=True)
class Nudges:
    """presence_penalty   taken from the logit of each token that the answer holds
    frequency_penalty  taken from it as often as the answer holds the token
    logit_bias         (token id, value added to its logit)
    source             OpenAI's API reference, "frequency and presence penalties"
    """

    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        for name in ("presence_penalty", "frequency_penalty"):
            if not -MOST_PENALTY <= getattr(self, name) <= MOST_PENALTY:
                raise InputError(f"{name} is {getattr(self, name)}, expected {-MOST_PENALTY:g} to {MOST_PENALTY:g}")
        for token, bias in self.logit_bias:
            if token < 0 or not -MOST_BIAS <= bias <= MOST_BIAS:
                raise InputError(
                    f"logit_bias of token {token} is {bias}, expected {-MOST_BIAS:g} to {MOST_BIAS:g} of an id from 0"
                )

    def check_vocabulary(self, size: int) -> None:
        """raises InputError for a token id that the model does not have"""
        for token, _ in self.logit_bias:
            if token >= size:
                raise InputError(f"logit_bias names token {token}, but the vocabulary has {size}")

    def added(self, logits: Tensor, answer: Sequence[int]) -> Tensor:
        """logits [V] float, answer: the tokens that were generated so far -> [V]"""
        logits = logits.clone()
        if answer and (self.presence_penalty or self.frequency_penalty):
            seen, counts = torch.tensor(answer).unique(return_counts=True)
            logits[seen] -= (self.presence_penalty + self.frequency_penalty * counts).to(logits.dtype)
        for token, bias in self.logit_bias:
            logits[token] += bias
        return logits


PENALTIES = (1e-6, 1e6)  # beyond them a float32 logit, divided or multiplied, can overflow


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to pick a token: temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 keep everything.

    min_p               drops tokens with less than this share of the likeliest token's probability
    repetition_penalty  above 1 makes tokens of the prompt and of the text so far less likely, greedy or not; 1 has no
                        effect
    nudges              more that is added to the logits; None: nothing
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    nudges: Nudges | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise InputError(f"temperature is {self.temperature}, expected 0 (greedy) or more")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p is {self.top_p}, expected more than 0 and at most 1")
        if self.top_k < 0:
            raise InputError(f"top_k is {self.top_k}, expected 0 (off) or more")
        if not 0 <= self.min_p <= 1:
            raise InputError(f"min_p is {self.min_p}, expected 0 (off) to 1")
        least, most = PENALTIES
        if not least <= self.repetition_penalty <= most:
            raise InputError(
                f"repetition_penalty is {self.repetition_penalty}, expected {least:g} to {most:g}; 1 is none"
            )
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed is {self.seed}, expected 0 to 2**63 - 1")


class Sampler:
    """Draws tokens one by one; the same seed gives the same draws."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.generator = torch.Generator().manual_seed(sampling.seed)

    def __call__(self, logits: Tensor, history: Sequence[int] = (), num_prompt: int = 0) -> int:
        """logits [V], history: the tokens so far, prompt (the first `num_prompt`) and text -> a token id

        raises   InputError for logits that are no numbers: those of a damaged model
        """
        logits = penalized(logits, history, self.sampling.repetition_penalty)
        if self.sampling.nudges is not None:
            logits = self.sampling.nudges.added(logits, history[num_prompt:])
        values = logits.numpy()
        best = int(values.argmax())  # NaN is above all; of 150,000 a tenth of the time that torch takes
        if not math.isfinite(values[best]):
            raise InputError(f"the model's logits hold {values[best]}, so no token follows; its weights are damaged")
        return best if self.sampling.temperature == 0 else self._draw(logits)

    @torch.inference_mode()
    def _draw(self, logits: Tensor) -> int:
        ids, probs = likely_tokens(logits, self.sampling)
        cumulative = probs.cumsum(0)
        drawn = torch.rand((), dtype=torch.float64, generator=self.generator) * cumulative[-1]  # in [0, all)
        place = torch.searchsorted(cumulative, drawn, right=True)  # the first whose cumulative mass is above
        return int(ids[place.clamp_max(len(ids) - 1)])


def penalized(logits: Tensor, history: Sequence[int], penalty: float) -> Tensor:
    """Logits with those of the tokens in `history` divided by the penalty where positive, times it where negative.

    logits   [V] float; each token counts once, however often it is there
    source   Keskar et al. 2019, arXiv:1909.05858, section 4.1, with the rule for negative logits of transformers
    """
    if penalty == 1 or not len(history):
        return logits
    seen = torch.tensor(history).unique()
    values = logits[seen]
    return logits.scatter(0, seen, torch.where(values < 0, values * penalty, values / penalty))


def tempered(logits: Tensor, temperature: float) -> Tensor:
    """The softmax of [V] logits over a temperature above 0, [V] float64.

    The largest is taken off first, so that the smallest temperature leaves 0 and -inf, not infinities.
    """
    return torch.softmax((logits.double() - logits.max()) / temperature, dim=-1)


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """The distribution that is drawn from: tempered, then cut to top_k, to top_p of the rest, and by min_p.

    logits   [V] float, penalized already; temperature above 0
    returns  [V] float64, sums to 1; top_p keeps the smallest set of likeliest tokens that reaches it
    source   Holtzman et al. 2019, arXiv:1904.09751, section 3.1 (top-p); Nguyen et al. 2024, arXiv:2407.01082,
             section 3 (min-p)
    """
    probs = tempered(logits, sampling.temperature)
    ordered, order = probs.sort(descending=True, stable=True)
    return torch.zeros_like(probs).scatter(0, order, _cut(ordered, sampling))


# Top-p of a confident model keeps tens of tokens; a thousand are found in a tenth of a sort's time.
FIRST_CANDIDATES = 1024


def likely_tokens(logits: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """`probabilities` of all tokens that may be drawn, without the sort of a whole vocabulary: ids, and theirs.

    returns  [C] int64 and [C] float64, sums to 1; 0 only if nothing is cut and exp underflows to 0
    """
    probs = tempered(logits, sampling.temperature)
    if sampling.top_k == 0 and sampling.top_p == 1:  # min-p needs no order
        if sampling.min_p == 0:
            return torch.arange(len(probs)), probs
        kept = (probs >= sampling.min_p * probs.max()).nonzero().flatten()
        return kept, probs[kept] / probs[kept].sum()
    count = sampling.top_k or FIRST_CANDIDATES
    ids = _likeliest(probs, count)
    while not sampling.top_k and len(ids) < len(probs) and probs[ids].sum() < sampling.top_p:
        count *= 16
        ids = _likeliest(probs, count)
    ordered, order = probs[ids].sort(descending=True, stable=True)
    cut = _cut(ordered, sampling)
    kept = cut > 0
    return ids[order[kept]], cut[kept]


def _likeliest(probs: Tensor, count: int) -> Tensor:
    """Ids of the `count` likeliest tokens, and of all that equal the last of them, ascending."""
    if count >= len(probs):
        return torch.arange(len(probs))
    least = probs.topk(count, sorted=True).values[-1]
    return (probs >= least).nonzero().flatten()


def _cut(ordered: Tensor, sampling: Sampling) -> Tensor:
    """Probabilities in descending order, with those that sampling drops at 0 and the rest summing to 1.

    ordered   the likeliest, and enough of them for top_k or top_p; the whole of which they are a part sums to 1
    """
    ordered = ordered.clone()
    if sampling.top_k:
        ordered[sampling.top_k :] = 0
        ordered /= ordered.sum()
    before = ordered.cumsum(0) - ordered  # mass of the likelier tokens
    ordered[before >= sampling.top_p] = 0
    ordered[ordered < sampling.min_p * ordered[:1]] = 0
    return ordered / ordered.sum()


@dataclass(frozen=True, slots=True)
class LogProbabilities:
    """In nats: of the token that was chosen, and of the likeliest, best first."""

    chosen: float
    top: tuple[tuple[int, float], ...]  # (token id, log-probability)


@torch.inference_mode()
def log_probabilities(logits: Tensor, token: int, top: int) -> LogProbabilities:
    """Those of the model's own distribution: before temperature, cuts and penalties.

    logits   [V] float
    raises   InputError for a `top` outside 0 .. V
    """
    if not 0 <= top <= len(logits):
        raise InputError(f"{top} log-probabilities asked for, expected 0 to {len(logits)}")
    values = torch.log_softmax(logits.double(), dim=-1)
    best = values.topk(top)
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return LogProbabilities(float(values[token]), tuple(pairs))
