"""Makes ref:llama-8k from ref:llama: `python -m qbench.reference.lengthen --minutes 75 --out DIR`.

The RoPE base grows first. A pair of channels with a wavelength above 1024 tokens never turned fully in ref:llama's
training, so the model knows only a part of its circle. The base 500,000 stretches these wavelengths at least eightfold
(the shortest, pair 18 of 32: 1117 to 10,089 tokens), so at 8192 tokens each pair stays in the known part. The fast
pairs, which find the neighbours of a token, hardly change (NTK-aware scaling, bloc97 2023; Llama 3 has the same base).
Share of recalls at 8192 tokens that ref:llama answers before any training, by base: 10,000: 34 %, 85,000: 93 %,
200,000: 99.5 %, 500,000: 100 % of 200.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import click
import numpy as np
from tokenizers import Tokenizer
from torch import nn

from qbench.reference import long_tasks
from qbench.reference.corpus import EOS, MIX, documents
from qbench.reference.curriculum import Stage, token_id
from qbench.reference.export import load
from qbench.reference.model import Llama, Shape
from qbench.reference.registry import weights_dir
from qbench.reference.train import Settings, Trainer

ROPE_BASE = 500_000.0
CONTEXT = 8192
LONG_MIX = {"recall": 0.15, "two_word_recall": 0.2, "aliases": 0.3, "counting": 0.2, "echoes": 0.15}
# With the new base ref:llama recalls over 8192 tokens before any training. Only the tasks are new, and tokens of
# short rows cost less than half of those of 8k rows, so most of the run is short.
STAGES = (
    Stage("256", 0.25, 256, 4096, LONG_MIX),
    Stage("512", 0.5, 512, 4096, LONG_MIX),
    Stage("1k", 0.62, 1024, 4096, LONG_MIX),
    Stage("2k", 0.72, 2048, 8192, LONG_MIX),
    Stage("4k", 0.84, 4096, 8192, LONG_MIX),
    Stage("8k", 1.0, CONTEXT, CONTEXT, LONG_MIX),
)
SHORT_SHARES = (0.1, 0.4)  # share of a row that short documents fill, so that their skills are not forgotten


class Lengthener(Trainer):
    """A run that continues from a trained network with a larger RoPE base and longer rows.

    start   the network to continue from; `shape` is the new one and differs in the context and the base alone
    """

    def __init__(
        self,
        settings: Settings,
        start: Llama,
        tokenizer: Tokenizer,
        shape: Shape,
        stages: tuple[Stage, ...] = STAGES,
    ):
        self.start = start
        super().__init__(settings, tokenizer, shape, stages)

    def first_model(self) -> nn.Module:
        model = super().first_model()
        model.load_state_dict(self.start.state_dict())
        return model

    def batches(self, stage: Stage, seed: int) -> Iterator[np.ndarray]:
        source = rows(self.tokenizer, stage, seed)
        while True:
            yield np.stack([next(source) for _ in range(stage.batch_tokens // stage.context)])

    def answers(self, rows: np.ndarray) -> np.ndarray:
        return long_tasks.answers(rows, self.tokenizer)

    def loss_weights(self, rows: np.ndarray) -> np.ndarray:
        return long_tasks.loss_weights(rows, self.tokenizer)

    def record(self) -> dict:
        return super().record() | {"made_from": "ref:llama"}


def rows(tokenizer: Tokenizer, stage: Stage, seed: int) -> Iterator[np.ndarray]:
    """Rows [context + 1]: a long document of the stage's mix, and short documents before or after it."""
    rng, short = Random(seed), documents(seed, MIX)
    while True:
        yield row(rng, tokenizer, stage, short)


def row(rng: Random, tokenizer: Tokenizer, stage: Stage, short: Iterator[str]) -> np.ndarray:
    eos = token_id(tokenizer, EOS)
    share = rng.uniform(*SHORT_SHARES)
    maker = long_tasks.MAKERS[rng.choices(list(stage.mix), list(stage.mix.values()))[0]]
    long = [eos, *tokenizer.encode(maker(rng, False, int((1 - share) * stage.context))).ids]
    others: list[int] = []
    while len(long) + len(others) <= stage.context:
        others += [eos, *tokenizer.encode(next(short)).ids]
    # The answers end a long document: only short ones are cut off.
    room = max(0, stage.context + 1 - len(long))
    tokens = others[:room] + long if rng.random() < 0.5 else long + others[:room]
    return np.array(tokens[: stage.context + 1])


@click.command()
@click.option("--minutes", default=75.0, show_default=True, help="Wall time at which training ends.")
@click.option("--tokens", type=int, help="Number of tokens that paces the schedule; default: the clock paces it.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("ref-llama-8k"), show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--lr", default=2e-3, show_default=True, help="Peak learning rate.")
def main(minutes: float, tokens: int | None, out: Path, seed: int, threads: int, lr: float) -> None:
    """Train ref:llama-8k and write it in the Hugging Face layout."""
    settings = Settings(out, minutes=minutes, tokens=tokens, seed=seed, threads=threads, lr=lr, decay_from=0.5)
    folder = weights_dir("llama")
    start = load(folder)
    assert isinstance(start, Llama)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    shape = Shape(tokenizer.get_vocab_size(), max_position_embeddings=CONTEXT, rope_theta=ROPE_BASE)
    record = Lengthener(settings, start, tokenizer, shape).run()
    click.echo(json.dumps({key: record[key] for key in ("seconds", "steps", "tokens")}))


if __name__ == "__main__":
    main()
