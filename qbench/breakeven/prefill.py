"""From which prompt length on a prefill pattern pays, at a given share of the dense attention weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from qbench.breakeven.question import Question, Settings, opened, question
from qbench.breakeven.turns import PatternTurn, ratios_to_first
from qbench.breakeven.verdict import Answer, Point
from qbench.prefill import parse_pattern, pattern_names
from qbench.progress import Progress
from qbench.reference.corpus import heldout_text
from qbench.run.cache_spec import DENSE
from qbench.run.work import SpeedWork
from qbench.runtime import load_model
from qbench.runtime.text.tokenizer import Tokenizer
from quant.errors import InputError
from quant.models import ModelConfig
from quant.present import present
from quant.source import Source

SIZES = (1024, 2048, 4096, 8192)


@dataclass(frozen=True, slots=True)
class Setting:
    """A pattern's setting at one prompt length, with its shares of blocks and of attention weights."""

    pattern: str
    blocks: float
    mass: float


@question("prefill")
class PrefillQuestion(Question):
    """Each pattern takes turns with dense, over the same prompt and the same loaded weights."""

    asks = "from which prompt length on does a prefill pattern pay, at equal attention mass?"
    axis = "prompt tokens"

    def answers(self, spec: str, settings: Settings, progress: Progress | None = None) -> Iterator[Answer]:
        ladders = ladders_of(settings.alternatives)
        # With a pattern, so that a model that cannot have one is refused.
        source, options = opened(spec, settings.with_options(prefill=next(iter(ladders.values()))[0]))
        sizes = settings.sizes_within(SIZES, ModelConfig.of(source).max_positions)
        model = load_model(source, options)
        points: dict[str, list[Point]] = {name: [] for name in ladders}
        for number, size in enumerate(sizes):
            if progress:
                progress(number, len(sizes), "prompt lengths")
            tokens = prompt_of(source, model.config.vocab_size, size)
            for name, point in points_at(model, tokens, ladders, settings):
                points[name].append(point)
        for name, its in points.items():
            yield Answer.of(name, its)


def ladders_of(alternatives: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Name -> settings to choose from: the ladder of a pattern, or the one setting that is given with its options.

    raises   InputError for an unknown pattern
    """
    ladders = {}
    for text in alternatives or [name for name in pattern_names() if name != DENSE]:
        if text == DENSE:
            raise InputError(f"every pattern is compared with {DENSE}; name another pattern")
        ladders[text] = parse_pattern(text).ladder if ":" not in text else (text,)
    return ladders


def prompt_of(source: Source, vocab_size: int, size: int) -> torch.Tensor:
    """[1, size] int64: held-out text; random tokens if the model has no tokenizer"""
    if source.tokenizer is None:
        return torch.randint(vocab_size, (1, size), generator=torch.Generator().manual_seed(0))
    ids = Tokenizer(source.tokenizer).encode(heldout_text())
    return torch.tensor(ids).repeat(-(-size // len(ids)))[None, :size]


def points_at(
    model: Any, tokens: torch.Tensor, ladders: dict[str, tuple[str, ...]], settings: Settings
) -> Iterator[tuple[str, Point]]:
    """Pattern -> its point at the length of the prompt."""
    size = tokens.shape[1]
    chosen = {name: sparsest(model, tokens, ladder, settings.mass) for name, ladder in ladders.items()}
    measured = {name: setting for name, setting in chosen.items() if setting.mass >= settings.mass}
    sides = [PatternTurn(model, DENSE, tokens, settings.clock)]
    sides += [PatternTurn(model, setting.pattern, tokens, settings.clock) for setting in measured.values()]
    case = SpeedWork(pp=size, tg=0, repetitions=settings.rounds)
    ratios = ratios_to_first(sides, case, "pp") if measured else []
    estimates = dict(zip(measured, ratios, strict=True))
    for name, setting in chosen.items():
        figures = {"blocks": setting.blocks, "mass": setting.mass}
        if name not in estimates:
            yield name, Point(size, None, figures=figures)
            continue
        found = estimates[name]
        yield name, Point(size, setting.pattern, found.value, found.low, found.high, figures)


def sparsest(model: Any, tokens: torch.Tensor, ladder: Sequence[str], mass: float) -> Setting:
    """The first setting of a ladder that reaches the mass; the last one if no setting does."""
    setting = None
    for pattern in ladder:
        setting = covered(model, tokens, pattern)
        if setting.mass >= mass:
            break
    return present(setting)


def covered(model: Any, tokens: torch.Tensor, pattern: str) -> Setting:
    """Shares of blocks and of dense attention weights of a pattern, over all layers."""
    tally = model.prefill_tally
    tally.restart(measures_mass=True)
    cache = model.new_cache(1, tokens.shape[1], spec=replace(model.cache_spec, prefill=pattern))
    model(tokens, cache, last_only=True)
    blocks, mass = present(tally.mean_blocks), present(tally.mean_mass)
    tally.restart(measures_mass=False)
    return Setting(pattern, blocks, mass)
