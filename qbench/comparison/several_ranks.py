"""The equivalence gate: logits of a model on several ranks against those of the same model on one rank."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from qbench.calibration.open_subject import open_subject
from qbench.calibration.write import open_quantized
from qbench.measure.quality_figures import AttentionDelta
from qbench.measure.records.kept_ranks import ABOVE, EQUAL, NOT_EQUAL, REFUSED, WITHIN, RankDistance, RanksMetrics
from qbench.progress import Progress
from qbench.quality.attention_delta import DeltaSums
from qbench.quality.evaluate import prepare, read_text
from qbench.run.choices import FLOAT32
from qbench.run.divisions import borders
from qbench.run.options import RunOptions
from qbench.run.rank_layout import GATHER
from qbench.run.work import CalibrationWork
from qbench.runtime import load_model
from qbench.runtime.decoder_model import DecoderModel
from qbench.runtime.parallel import RankModel, joined_ranks
from qbench.sources import open_source
from qbench.speed.rank_bench import exchange_of
from quant.errors import InputError
from quant.job import QuantizationJob, make_job
from quant.models import ModelConfig
from quant.present import present
from quant.quantize import QuantizedSource
from quant.recipes import get_recipe
from quant.source import Source
from quant.stage import read_stage

NUM_STEPS = 8  # last tokens of a window, each in a forward pass of its own: decode has other kernels than prefill
RANDOM_TOKENS, SEED = 128, 18


def measure_distances(
    spec: str,
    recipes: Sequence[str | None],
    divisions: Sequence[RunOptions],
    *,
    text: str | None = None,
    max_windows: int | None = None,
    progress: Progress | None = None,
) -> Iterator[RankDistance]:
    """One row per recipe and division; every rank runs its parts, and rank 0 alone the whole model.

    divisions  of as many ranks as have joined
    raises     InputError for a model that cannot be opened, and for a text that it cannot be evaluated on
    """
    for recipe in filter(None, recipes):
        make_job(open_source(spec), get_recipe(recipe))  # raises for one that is unknown or does not fit
    for number, recipe in enumerate(recipes):
        if progress is not None:
            progress(number, len(recipes), "recipes")
        yield from _distances(spec, [replace(each, recipe=recipe) for each in divisions], text, max_windows)


def _distances(
    spec: str, divisions: Sequence[RunOptions], text: str | None, max_windows: int | None
) -> Iterator[RankDistance]:
    subject = open_subject(spec, divisions[0], quantize=quantized_once)
    windows, whole = _windows(subject.source, text, max_windows), Whole(subject.source, len(divisions) > 1)
    for options in divisions:
        found = _measured(subject.source, options.with_threads(subject.threads), windows, whole)
        about = (spec, options.recipe, options.kv_format, options.prefill, options.layout, options.compute)
        yield RankDistance(*about, found)


class Whole:
    """The logits of one rank, and the floor: their distance from those in float32.

    keeps  whether logits stay for the next division
    """

    def __init__(self, source: Source, keeps: bool) -> None:
        self._source, self._keeps, self._floor = source, keeps, DeltaSums()
        self._models: list[DecoderModel] | None = None
        self._kept: list[Tensor] = []

    @property
    def floor(self) -> AttentionDelta:
        return self._floor.statistics()

    def logits(self, number: int, tokens: np.ndarray, options: RunOptions) -> Tensor:
        """Logits of a window whose prefill is cut as in the division of these options.

        number   windows before this one
        """
        if number < len(self._kept):
            return self._kept[number]
        if self._models is None:
            alone = options.undivided
            self._models = [load_model(self._source, each) for each in (alone, replace(alone, compute=FLOAT32))]
        model, in_float32 = self._models
        expected = _logits(model, tokens, options.layout.micro_batches)
        self._floor.add(expected, _logits(in_float32, tokens), torch.from_numpy(tokens[1:]))
        if self._keeps:
            self._kept.append(expected)
        return expected


def _measured(source: Source, options: RunOptions, windows: Sequence[np.ndarray], whole: Whole) -> RanksMetrics:
    """On rank 0 with the distances; on the others with the verdict of rank 0."""
    ranks = joined_ranks()
    ranks.divide(options.layout)
    try:
        parts = load_model(source, options)
    except InputError as error:
        return RanksMetrics(REFUSED, reason=str(error))
    assert isinstance(parts, RankModel)
    delta = DeltaSums()
    for number, tokens in enumerate(windows):
        of_ranks = _logits(parts, tokens)
        if ranks.rank == 0:
            delta.add(of_ranks, whole.logits(number, tokens, options), torch.from_numpy(tokens[1:]))
    traffic, link = exchange_of(parts), ranks.link.name
    if ranks.rank != 0:
        return RanksMetrics(ranks.meeting.tell("verdict", "")[0], link=link, exchange=traffic)
    found, noise = delta.statistics(), whole.floor
    outcome = verdict(found, noise, options)
    ranks.meeting.tell("verdict", outcome)
    return RanksMetrics(outcome, found, noise, link=link, exchange=traffic)


def verdict(delta: AttentionDelta, floor: AttentionDelta, options: RunOptions) -> str:
    """Stages and the gathering cut have to be equal; the summing cut, divided experts and shares, below the floor.

    With compute float32 the floor is 0, so it is the largest logit difference that another order of float32 sums makes.
    """
    if delta.max_logit == 0:
        return EQUAL
    layout = options.layout
    if layout.num_lanes == 1 or (layout.tp > 1 and layout.cut == GATHER):
        return NOT_EQUAL
    if options.compute == FLOAT32:
        return WITHIN if (delta.max_logit or np.inf) <= FLOAT32_DELTA else ABOVE
    return WITHIN if (delta.mean_kld or 0) <= (floor.mean_kld or 0) else ABOVE


# 2**-24 of a float32 sum's terms, times the square root of 2**14 terms, times 2**6 roundings of 32 layers; logits are
# of order 2**4.
FLOAT32_DELTA = 2**-24 * 2**7 * 2**6 * 2**4


def _logits(model, tokens: np.ndarray, num_parts: int | None = None) -> Tensor:
    """[T - 1, V] of the token after each but the last: a prefill, then single steps

    num_parts  of the prefill, as micro-batches cut it: kernels round the inputs of few tokens otherwise than of many
    """
    row = torch.from_numpy(tokens[None, :-1])
    cache = model.new_cache(batch=1, capacity=row.shape[1])
    first, *steps = row.split([row.shape[1] - NUM_STEPS, *[1] * NUM_STEPS], dim=1)
    parts = [first[:, each] for each in borders(first.shape[1], 1, num_parts or 1)]
    return torch.cat([*(model(part, cache)[0] for part in parts), *(model(step, cache)[0] for step in steps)])


def _windows(source: Source, text: str | None, max_windows: int | None) -> list[np.ndarray]:
    """Windows of the text; random tokens for a model without a tokenizer."""
    if source.tokenizer is not None:
        (scoring,) = prepare(source, read_text(text, source.spec), max_windows)
        return [window.tokens for window in scoring.windows]
    config = ModelConfig.of(source)
    shape = (max_windows or 1, min(RANDOM_TOKENS, config.max_positions))
    return list(np.random.default_rng(SEED).integers(config.vocab_size, size=shape))


def quantized_once(
    job: QuantizationJob, options: CalibrationWork, *, threads: int, progress: Progress | None = None
) -> QuantizedSource:
    """As `open_quantized`. The others wait for rank 0, and read the layers from its folder while it has the model.

    A rank that does not see the folder, because it is on another host, quantizes by itself.
    """
    meeting, folder, source = joined_ranks().meeting, "", None
    if meeting.rank == 0 or not job.needs_calibration:
        source = open_quantized(job, options, threads=threads, progress=progress)
    if not job.needs_calibration:
        return present(source)
    if source is not None:
        folder = str(present(source.stage).folder)
    seen = Path(meeting.tell("quantized", folder)[0])
    if source is None and seen.is_dir():
        return QuantizedSource(job, read_stage(seen))
    return source or open_quantized(job, options, threads=threads, progress=progress)
