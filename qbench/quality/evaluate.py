"""`evaluate`: the quality of one model as a dictionary, from a spec to the numbers."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from qbench.calibration.open_subject import open_subject
from qbench.measure.metrics import Metrics
from qbench.measure.subject import Subject
from qbench.progress import Progress
from qbench.quality.attention_delta import has_textbook
from qbench.quality.kld.reference_logits import KeptLogits, cache_path
from qbench.quality.non_finite import find_non_finite
from qbench.quality.peak_memory import PeakMemory, bytes_next_to_passes, predicted_peak
from qbench.quality.protocols.conventions import DEFAULT, make_scorings
from qbench.quality.protocols.documents import read_passage
from qbench.quality.protocols.forward import batch_size
from qbench.quality.protocols.scoring import Scoring, Setting
from qbench.quality.quality import Reference, measure_quality
from qbench.reference.corpus import heldout_text
from qbench.run.choices import CPU, TEXTBOOK
from qbench.run.options import DEFAULTS, RunOptions
from qbench.run.work import QualityWork, text_file
from qbench.runtime import load_model
from qbench.runtime.offload import OffloadedModel, Use, check_limit
from qbench.sources import open_source
from qbench.words.written import read_text_file
from quant.atomic import atomic_file
from quant.errors import InputError
from quant.models import ModelConfig
from quant.source import Source

EVERYTHING = QualityWork()  # the whole held-out text under the default protocol, without a reference


def evaluate(
    spec: str,
    settings: QualityWork = EVERYTHING,
    options: RunOptions = DEFAULTS,
    *,
    logits_cache: Path | None = None,
    notice: Callable[[PeakMemory], None] | None = None,
    progress: Progress | None = None,
) -> Metrics:
    """Perplexity under named protocols, and with a reference the divergence from its logits.

    options       of the measured model, which is also compared with itself by textbook attention if it has another one;
                  the reference is float32 and runs on the CPU
    logits_cache  folder where a sweep keeps the reference's logits, the text's tokens and the held-out text itself
    notice        gets the predicted memory of a model in this process before the weights are read
    raises        InputError for a missing text or tokenizer, a reference of another vocabulary, or a file of logits
                  that was made from another text or under another protocol
    """
    start = time.perf_counter()
    kept = kept_logits(settings.logits, settings.reference)
    if kept is not None:
        settings = kept.completed(settings)
    open_start = time.perf_counter()
    subject = open_subject(spec, options, progress)
    open_seconds = time.perf_counter() - open_start
    reference = kept.header["model"] if kept else settings.reference
    passage = read_text(settings.text, spec, reference, kept=logits_cache)
    setting = setting_of(subject.source, passage, settings.max_windows, settings.documents, logits_cache)
    scorings = make_scorings(setting, settings.protocols or (DEFAULT,))
    if kept is not None:
        kept.require(scorings)
    load_start = time.perf_counter()
    use = _largest_pass(scorings, subject.source)
    if options.memory_bytes is not None:
        num_models = 2 if reference is not None or has_textbook(options) else 1
        source = None if kept or logits_cache or reference is None else open_source(reference)
        use = replace(use, scored_bytes=bytes_next_to_passes(subject, source, use, num_models))
    check_limit(subject.source, subject.options, use)
    in_one_process = options.layout.num_ranks == 1 and options.device == CPU and options.memory_bytes is None
    reads_once = not options.cache_spec.make_policy().needs_future
    if notice is not None and in_one_process and reads_once:
        notice(predicted_peak(subject, None if kept or reference is None else open_source(reference), use))
    model = load_model(subject.source, subject.options)
    if isinstance(model, OffloadedModel):
        model.weights.budget.keep_for_scores(use.scored_bytes, model.weights.streamer.resident_bytes)
    if model.prefill_tally is not None:
        model.prefill_tally.restart(measures_mass=True)
    load_seconds = open_seconds + time.perf_counter() - load_start
    beside = None
    if kept is not None:
        beside = Reference(kept.vocab_size, kept=[kept])
    elif reference is not None:
        beside = open_reference(reference, subject, setting, scorings, logits_cache)
    textbook = model.attending(TEXTBOOK) if has_textbook(options) else None
    results = measure_quality(
        model, scorings, model.config.vocab_size, reference=beside, textbook=textbook, progress=progress
    )
    if any(result.non_finite for result in results):
        place = find_non_finite(model, scorings, model.config.vocab_size)
        results = [replace(result, non_finite_at=place) if result.non_finite else result for result in results]
    told = [
        replace(result, protocol=scoring.protocol.of(options.compute).describe())
        for scoring, result in zip(scorings, results, strict=True)
    ]
    return Metrics(
        facts=subject.facts(model.impls, model.kernels, model.prefill_tally),
        reference=reference,
        explicit=frozenset({"reference"}),
        quality=told[0],
        protocols={scoring.protocol.name: result for scoring, result in zip(scorings, told, strict=True)}
        if told[1:]
        else None,
        timed_seconds=told[0].timed_seconds,
        load_seconds=load_seconds,
        seconds=time.perf_counter() - start,
    )


def _largest_pass(scorings: Sequence[Scoring], source: Source) -> Use:
    longest = max(len(window.tokens) for scoring in scorings for window in scoring.windows)
    num_windows = sum(len(scoring.windows) for scoring in scorings)
    return Use(longest, min(num_windows, batch_size(longest, ModelConfig.of(source).vocab_size)))


def prepare(source: Source, text: str, max_windows: int | None, protocols: Sequence[str] = (DEFAULT,)) -> list[Scoring]:
    """Scored windows of each protocol for this text, by the source's tokenizer and context; raises as `evaluate`"""
    return make_scorings(setting_of(source, text, max_windows), protocols)


def setting_of(
    source: Source, text: str, max_windows: int | None, documents: str | None = None, kept: Path | None = None
) -> Setting:
    """raises InputError for a model without tokenizer"""
    if source.tokenizer is None:
        raise InputError(f"{source.spec} has no tokenizer, so no text can be evaluated; choose a model with one")
    context = ModelConfig.of(source).max_positions
    return Setting(read_passage(text, documents), source.tokenizer, context, max_windows, kept)


def read_text(path: str | Path | None, *specs: str | None, kept: Path | None = None) -> str:
    """The file's text, or the reference models' held-out text if one of the specs is `ref:`.

    kept     folder of the held-out text after it is written; it may be lost at any moment
    """
    if path is None:
        if any(spec and spec.startswith("ref:") for spec in specs):
            return _heldout_text(kept)
        raise InputError("no text to evaluate on; give a UTF-8 text file with --text")
    return read_text_file(text_file(str(path)) or path, "text")


def _heldout_text(kept: Path | None) -> str:
    if kept is None:
        return heldout_text()
    path = kept / "heldout.txt"
    if not path.exists():
        with atomic_file(path) as fresh:
            fresh.write_text(heldout_text(), encoding="utf-8", newline="")
    return path.read_text(encoding="utf-8")


def kept_logits(path: Path | None, reference: str | None) -> KeptLogits | None:
    """The file of `--logits`. raises InputError if a reference is given too, or for a file that cannot be used"""
    if path is None:
        return None
    if reference is not None:
        raise InputError(f"both the reference {reference} and a file of a reference's logits; give one of them")
    return KeptLogits(path)


def open_reference(
    spec: str, subject: Subject, setting: Setting, scorings: Sequence[Scoring], cache: Path | None
) -> Reference:
    """Logits of the reference in `cache`; the reference runs next to the model for scorings without kept logits.

    raises   InputError for a reference that tokenizes the text differently
    """
    source = open_source(spec)
    kept: list[KeptLogits | None] = [None] * len(scorings)
    if cache is not None:
        paths = [cache_path(cache, scoring.protocol, source.fingerprint()) for scoring in scorings]
        kept = [KeptLogits(path) if path.exists() else None for path in paths]
    if all(kept):  # of this reference and these very tokens, as a protocol describes them
        return Reference(ModelConfig.of(source).vocab_size, kept=kept)
    if source.tokenizer not in (None, setting.tokenizer):
        theirs = replace(setting, tokenizer=source.tokenizer)
        if not np.array_equal(theirs.tokens, setting.tokens):
            raise InputError(f"{subject.spec} and its reference {spec} tokenize differently; KLD needs the same tokens")
    model = load_model(source, RunOptions(threads=subject.threads), impl="reference")
    return Reference(model.config.vocab_size, model, kept)
