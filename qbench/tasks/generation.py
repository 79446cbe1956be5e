"""Text that continues many prompts side by side, until a stop string, as lm-eval asks for it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from qbench.runtime import Sampling, Tokenizer
from qbench.runtime.decoder_model import DecoderModel
from qbench.runtime.text.sampling import Sampler
from qbench.tasks.scoring import read_in_parts

BATCH = 16  # a step of so many sequences still waits for the weights, so each but the first is nearly free


@dataclass(frozen=True, slots=True)
class Prompt:
    tokens: tuple[int, ...]
    stop: tuple[str, ...]  # texts that end the answer, themselves left out
    max_new_tokens: int
    sampling: Sampling
    cuts: tuple[int, ...] = ()  # tokens after which a forward pass ends, so that a policy compresses there


def plan_batches(prompts: Sequence[Prompt]) -> list[list[int]]:
    """Indices of prompts of one length, limit and cuts, the longest first; each prompt once."""
    alike: dict[tuple[int, int, tuple[int, ...]], list[int]] = defaultdict(list)
    for index, prompt in enumerate(prompts):
        alike[len(prompt.tokens), prompt.max_new_tokens, prompt.cuts].append(index)
    batches = []
    for _, indices in sorted(alike.items(), reverse=True):
        batches += [indices[start : start + BATCH] for start in range(0, len(indices), BATCH)]
    return batches


@torch.inference_mode()
def generate_batch(
    model: DecoderModel, tokenizer: Tokenizer, prompts: Sequence[Prompt], stop_ids: frozenset[int]
) -> list[str]:
    """The answer to each prompt, all of one length, limit and cuts."""
    answers = [_Answer(tokenizer, prompt, stop_ids) for prompt in prompts]
    limit = prompts[0].max_new_tokens
    cache = model.new_cache(len(prompts), len(prompts[0].tokens) + limit)
    fed = torch.tensor([prompt.tokens for prompt in prompts])  # [B, T]
    cuts = prompts[0].cuts
    for _ in range(limit):
        logits = read_in_parts(model, fed, cuts, cache)[:, -1]  # [B, V]
        cuts = ()
        fed = torch.tensor([[answer.push(row)] for answer, row in zip(answers, logits, strict=True)])  # [B, 1]
        if all(answer.done for answer in answers):
            break
    return [answer.text() for answer in answers]


class _Answer:
    """One prompt's text as it grows; tokens after its end are drawn for the batch's sake and not kept."""

    def __init__(self, tokenizer: Tokenizer, prompt: Prompt, stop_ids: frozenset[int]) -> None:
        self.tokenizer = tokenizer
        self.stop = [text for text in prompt.stop if text]
        self.stop_ids = stop_ids
        self.sampler = Sampler(prompt.sampling)
        self.stream = tokenizer.stream()
        self.streamed = ""
        self.tokens: list[int] = []
        self.done = False

    def push(self, logits: torch.Tensor) -> int:
        """logits [V] -> the token to feed next"""
        if self.done:
            return self.tokens[-1] if self.tokens else 0
        token = self.sampler(logits)
        if token in self.stop_ids:
            self.done = True
            return token
        self.tokens.append(token)
        new = self.stream.push(token)
        self.streamed += new
        self.done = any(text in self.streamed[-len(new) - len(text) :] for text in self.stop)
        return token

    def text(self) -> str:
        text = self.tokenizer.decode(self.tokens)
        return text[: min(_find(text, stop) for stop in self.stop)] if self.stop else text


def _find(text: str, stop: str) -> int:
    """Position of `stop`; the end of the text if it does not occur."""
    at = text.find(stop)
    return len(text) if at < 0 else at


def count_occurrences(items: Sequence[object]) -> Iterator[int]:
    """How often each item occurred before: 0 for the first, so that repeated draws differ."""
    seen: dict[object, int] = defaultdict(int)
    for item in items:
        yield seen[item]
        seen[item] += 1
