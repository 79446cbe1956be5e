"""Makes ref:llama-8k from ref:llama: `python -m training.lengthen --minutes 50 --out DIR`.

The RoPE base grows first. A pair of channels with a wavelength above 1024 tokens never turned fully in ref:llama's
training, so the model knows only a part of its circle. The base 500,000 stretches these wavelengths at least eightfold
(the shortest, pair 18 of 32: 1117 to 10,089 tokens), so at 8192 tokens each pair stays in the known part. The fast
pairs, which find the neighbours of a token, hardly change (NTK-aware scaling, bloc97 2023; Llama 3 has the same base).
Share of recalls at 8192 tokens that ref:llama answers before any training, by base: 10,000: 34 %, 85,000: 93 %,
200,000: 99.5 %, 500,000: 100 % of 200.

The embedded weights took two runs: 15 minutes of rows up to 512 tokens, then 34 minutes of STAGES with --start. Their
training.json has both.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from random import Random

import click
import numpy as np
from tokenizers import Tokenizer
from torch import nn

from qbench.reference import long_tasks
from qbench.reference.corpus import EOS, MIX, documents
from qbench.reference.curriculum import Stage, token_id
from qbench.reference.registry import weights_dir
from training.export import load
from training.model import Llama, Shape
from training.train import Settings, Trainer, device_option

ROPE_BASE = 500_000.0
CONTEXT = 8192
LEAST_CONTEXT = 64
DENSE_MIX = {"two_word_recall": 0.35, "aliases": 0.4, "recall": 0.1, "counting": 0.05, "echoes": 0.1}
LONG_MIX = {"two_word_recall": 0.25, "aliases": 0.3, "recall": 0.2, "counting": 0.1, "echoes": 0.15}
# With the new base ref:llama recalls over 8192 tokens before any training. Only the tasks are new, and they are learnt
# from short rows in which every other line is a question: rows of 256 to 2048 tokens taught no aliases in 1.6 million
# tokens, rows of 64 to 256 tokens did. But after 200 steps of 256 tokens alone, recall at 4096 tokens fell from 99 % to
# 56 %. So every stage has all contexts from LEAST_CONTEXT to its own, each in as many steps.
STAGES = (
    Stage("256", 0.36, 256, 4096, DENSE_MIX),
    Stage("2k", 0.62, 2048, 4096, LONG_MIX),
    Stage("8k", 1.0, CONTEXT, CONTEXT, LONG_MIX),
)
SHORT_SHARES = (0.05, 0.3)  # share of a row that short documents fill, so that their skills are not forgotten


class Lengthener(Trainer):
    """A run that continues from a trained network with a larger RoPE base and longer rows.

    start   the network to continue from; `shape` is the new one and differs in the context and the base alone
    before  the record of the run that made `start`, if it was one of these; None: `start` is ref:llama
    """

    def __init__(
        self,
        settings: Settings,
        start: Llama,
        tokenizer: Tokenizer,
        shape: Shape,
        stages: tuple[Stage, ...] = STAGES,
        before: dict | None = None,
    ):
        self.start, self.before = start, before
        super().__init__(settings, tokenizer, shape, stages)

    def first_model(self) -> nn.Module:
        model = super().first_model()
        model.load_state_dict(self.start.state_dict())
        return model

    def batches(self, stage: Stage, seed: int) -> Iterator[np.ndarray]:
        rng = Random(seed)
        sources = [rows(self.tokenizer, stage, context, seed + context) for context in contexts(stage)]
        while True:
            source = rng.choice(sources)
            first = next(source)
            yield np.stack([first, *islice(source, stage.batch_tokens // (len(first) - 1) - 1)])

    def answers(self, rows: np.ndarray) -> np.ndarray:
        return long_tasks.answers(rows, self.tokenizer)

    def loss_weights(self, rows: np.ndarray) -> np.ndarray:
        return long_tasks.loss_weights(rows, self.tokenizer)

    def record(self) -> dict:
        return super().record() | {"made_from": "ref:llama", "before": self.before}


def contexts(stage: Stage) -> list[int]:
    """LEAST_CONTEXT, its double, and so on up to the stage's context."""
    found = [stage.context]
    while found[-1] > LEAST_CONTEXT:
        found.append(found[-1] // 2)
    return found[::-1]


def rows(tokenizer: Tokenizer, stage: Stage, context: int, seed: int) -> Iterator[np.ndarray]:
    """Rows [context + 1]: a long document of the stage's mix, and short documents before or after it."""
    rng, short = Random(seed), documents(seed, MIX)
    while True:
        yield row(rng, tokenizer, stage.mix, context, short)


def row(rng: Random, tokenizer: Tokenizer, mix: Mapping[str, float], context: int, short: Iterator[str]) -> np.ndarray:
    eos = token_id(tokenizer, EOS)
    maker = long_tasks.MAKERS[rng.choices(list(mix), list(mix.values()))[0]]
    num_tokens = int((1 - rng.uniform(*SHORT_SHARES)) * context)
    long = [eos, *tokenizer.encode(maker(rng, False, num_tokens)).ids]
    others: list[int] = []
    while len(long) + len(others) <= context:
        others += [eos, *tokenizer.encode(next(short)).ids]
    # Only short documents are cut off, because the answers end a long one.
    room = max(0, context + 1 - len(long))
    tokens = others[:room] + long if rng.random() < 0.5 else long + others[:room]
    return np.array(tokens[: context + 1])


@click.command()
@click.option("--minutes", default=50.0, show_default=True, help="Wall time at which training ends.")
@click.option("--tokens", type=int, help="Number of tokens that paces the schedule; default: the clock paces it.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("ref-llama-8k"), show_default=True)
@click.option(
    "--start",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of an earlier run to continue from; default: ref:llama.",
)
@click.option("--seed", default=0, show_default=True)
@device_option
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--lr", default=2e-3, show_default=True, help="Peak learning rate.")
def main(
    minutes: float, tokens: int | None, out: Path, start: Path | None, seed: int, device: str, threads: int, lr: float
) -> None:
    """Train ref:llama-8k and write it in the Hugging Face layout."""
    given = {"minutes": minutes, "tokens": tokens, "seed": seed, "device": device, "threads": threads, "lr": lr}
    settings = Settings(out, **given, decay_from=0.5)
    folder = weights_dir("llama") if start is None else start
    network = load(folder)
    assert isinstance(network, Llama)
    before = None if start is None else json.loads((start / "training.json").read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    shape = Shape(tokenizer.get_vocab_size(), max_position_embeddings=CONTEXT, rope_theta=ROPE_BASE)
    record = Lengthener(settings, network, tokenizer, shape, before=before).run()
    click.echo(json.dumps({key: record[key] for key in ("seconds", "steps", "tokens")}))


if __name__ == "__main__":
    main()
