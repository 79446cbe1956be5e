"""Skills of a reference model on items that it never saw: agreement, recall by distance, sums, brackets, perplexity."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from random import Random

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from qbench.reference.corpus import EOS, HELDOUT_SEED, SKILLS, heldout_text
from qbench.reference.ngram import train_trigram
from qbench.reference.prose import minimal_pair
from qbench.reference.recall import bindings, sparse
from qbench.reference.tasks import CLOSERS, problem, sums, working
from quant.present import present

Model = Callable[[Tensor], Tensor]  # tokens [B, T] int64 -> logits [B, T, V]

DISTANCES = (64, 128, 256, 512, 768, 960)  # tokens from a value to its question
RECALL_CONTEXT = 1000  # tokens before the answer, at every distance


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many items each figure rests on."""

    pairs: int = 400
    recalls: int = 64  # a distance
    sums: int = 300
    text_chars: int = 60_000  # of held-out text, a skill
    trigram_documents: int = 4000
    answers: int = 200  # a long task and length


QUICK = Sizes(pairs=40, recalls=4, sums=40, text_chars=6000, trigram_documents=400, answers=20)


def skill_report(model: Model, tokenizer: Tokenizer, sizes: Sizes = Sizes()) -> dict:
    """Every skill's held-out figure; shares are 0 to 1, perplexities per token."""
    trigram = train_trigram(tokenizer, sizes.trigram_documents)
    perplexity, trigram_perplexity, closers_right = {}, {}, 0.0
    for skill in (None, *SKILLS):
        tokens = np.array(tokenizer.encode(heldout_text(skill, sizes.text_chars)).ids)
        name = skill or "mixed"
        losses, best_closers = score_text(model, tokenizer, tokens)
        perplexity[name] = float(np.exp(losses.mean()))
        trigram_perplexity[name] = float(np.exp(-trigram.log_probs(tokens).mean()))
        if skill == "nested":
            closers_right = float(best_closers.mean())
    return {
        "minimal_pairs": minimal_pairs(model, tokenizer, sizes.pairs),
        "recall": {d: recall_at(model, tokenizer, d, sizes.recalls) for d in DISTANCES},
        "arithmetic": exact_sums(model, tokenizer, sizes.sums),
        "closing_brackets": closers_right,
        "perplexity": perplexity,
        "trigram_perplexity": trigram_perplexity,
        "trigram_tokens": trigram.num_tokens,
        "sizes": asdict(sizes),
    }


@torch.no_grad()
def score_text(model: Model, tokenizer: Tokenizer, tokens: np.ndarray, context: int = 1024) -> tuple[np.ndarray, ...]:
    """Losses in nats of every token after each window's first, and whether the likeliest closer is right.

    tokens   [T] int64, cut into windows of `context` tokens; a last, shorter one counts too
    returns  losses [<= T - 1] float32; right [number of closing brackets] bool
    """
    closers = torch.tensor([tokenizer.token_to_id(f"Ġ{closer}") for closer in CLOSERS])
    losses, right = [], []
    for start in range(0, len(tokens) - 1, context):
        window = torch.from_numpy(tokens[start : start + context + 1])  # [W]
        targets = window[1:]
        log_probs = model(window[None, :-1])[0].float().log_softmax(-1)  # [W - 1, V]
        losses.append(-log_probs.gather(1, targets[:, None])[:, 0])
        closing = torch.isin(targets, closers)
        right.append(closers[log_probs[closing][:, closers].argmax(-1)] == targets[closing])
    return torch.cat(losses).numpy(), torch.cat(right).numpy()


@torch.no_grad()
def minimal_pairs(model: Model, tokenizer: Tokenizer, count: int, seed: int = HELDOUT_SEED) -> float:
    """The share of held-out pairs whose right sentence is likelier than the wrong one, in its story."""
    rng = Random(seed)
    right = 0
    for _ in range(count):
        pair = minimal_pair(rng)
        good, bad = (tokenizer.encode(EOS + pair.context + sentence).ids for sentence in (pair.good, pair.bad))
        rows = torch.zeros(2, max(len(good), len(bad)), dtype=torch.int64)
        rows[0, : len(good)], rows[1, : len(bad)] = torch.tensor(good), torch.tensor(bad)
        log_probs = model(rows[:, :-1]).float().log_softmax(-1)
        picked = log_probs.gather(2, rows[:, 1:, None])[..., 0]  # [2, T - 1]
        right += bool(picked[0, : len(good) - 1].sum() > picked[1, : len(bad) - 1].sum())
    return right / count


@torch.no_grad()
def recall_at(model: Model, tokenizer: Tokenizer, distance: int, count: int, batch: int = 8) -> float:
    """The share of held-out bindings answered rightly, the answer `distance` tokens after the value was set."""
    rng = Random(HELDOUT_SEED + distance)
    right = 0
    for start in range(0, count, batch):
        needles = [needle(rng, tokenizer, distance) for _ in range(min(batch, count - start))]
        logits = model(torch.tensor([row for row, _ in needles]))[:, -1]  # [B, V]
        right += int((logits.argmax(-1).cpu() == torch.tensor([answer for _, answer in needles])).sum())
    return right / count


def needle(rng: Random, tokenizer: Tokenizer, distance: int, context: int = RECALL_CONTEXT) -> tuple[list[int], int]:
    """`context` tokens that end in `get KEY`, and the answer.

    The answer would be token number `context`, and occurs once, `distance` tokens earlier. The rest is
    held-out prose with other keys set and asked for.
    """

    def token(text: str) -> int:
        return present(tokenizer.token_to_id(text))

    eos, newline = token(EOS), token("Ċ")
    filler = tokenizer.encode(sparse(rng, heldout=True, num_tokens=2 * context)).ids
    key = value = filler[0]
    while key in filler:
        ((key_word, value_word),) = bindings(rng, 1, heldout=True).items()
        key, value = (token(f"Ġ{word}") for word in (key_word, value_word))
    value_at = context - distance
    before = [eos, *filler][: value_at - 2]
    after = filler[value_at:][: distance - 4]
    before[-1] = eos if len(before) == 1 else newline  # whole lines: `set` and `get` begin theirs
    after[-1] = newline
    asked = [token("set"), key, value, newline, *after, token("get"), key]
    return before + asked, value


@torch.no_grad()
def exact_sums(model: Model, tokenizer: Tokenizer, count: int, seed: int = HELDOUT_SEED) -> float:
    """The share of held-out sums whose every next token, working and result, is the likeliest one.

    That is when greedy generation writes the whole line rightly. Four solved sums come first.
    """
    rng = Random(seed)
    right = 0
    for _ in range(count):
        a, b = problem(rng, heldout=True)
        prompt = tokenizer.encode(f"{EOS}{sums(rng, count=4)}{a}+{b}:").ids
        answer = tokenizer.encode(f"{working(a, b)}\n").ids
        row = torch.tensor([prompt + answer])
        guesses = model(row[:, :-1])[0, len(prompt) - 1 :].argmax(-1)
        right += guesses.tolist() == answer
    return right / count


def render(report: dict) -> str:
    """The report as lines of text, one skill a line."""
    recall = "  ".join(f"{distance}: {share:.1%}" for distance, share in report["recall"].items())
    lines = [
        f"minimal pairs right      {report['minimal_pairs']:.1%}",
        f"recall by distance       {recall}",
        f"sums, whole line right   {report['arithmetic']:.1%}",
        f"closing brackets right   {report['closing_brackets']:.1%}",
        f"perplexity, held out     {'model':>8} {'trigram':>8}",
    ]
    for name, value in report["perplexity"].items():
        lines.append(f"  {name:<22} {value:8.2f} {report['trigram_perplexity'][name]:8.2f}")
    for task, shares in report.get("by_length", {}).items():
        lines.append(f"{task + ' by length':<24} {'  '.join(f'{n}: {share:.1%}' for n, share in shares.items())}")
    return "\n".join(lines)
