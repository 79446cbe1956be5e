"""`evaluate`: the quality of one model as a dictionary, from a spec to the numbers."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from qbench.harness.protocol import Protocol, cut_windows, tokens_sha256, whole_windows
from qbench.harness.quality import LiveLogits, Progress, ReferenceLogits, measure_quality
from qbench.harness.reference_logits import CachedLogits, cache_path
from qbench.harness.subject import Subject, open_subject
from quant.errors import InputError
from quant.source import Source


def evaluate(
    spec: str,
    *,
    reference: str | None = None,
    text: str | Path | None = None,
    recipe: str | None = None,
    max_windows: int | None = None,
    threads: int | None = None,
    kv: str | None = None,
    progress: Progress | None = None,
    logits_cache: Path | None = None,
) -> dict[str, Any]:
    """Perplexity under a named protocol, and with a reference the divergence from its logits.

    text          a UTF-8 file; None takes the held-out text of a ref: model (or of a ref: reference)
    recipe        measure the model as this recipe would make it, quantized tensor by tensor while loading
    kv            keep keys and values in this format instead of the model's own
    logits_cache  folder where a sweep keeps the reference's logits; used where they are there
    returns       the row's keys, with interval and counts beside each statistic
    raises        InputError for a missing text or tokenizer, or a reference of another vocabulary
    """
    from qbench.runtime import load_model

    start = time.perf_counter()
    subject = open_subject(spec, recipe, threads, progress, kv=kv)
    passage = read_text(text, spec, reference)
    protocol, windows = prepare(subject.source, passage, max_windows)
    model = load_model(subject.source, threads=subject.threads)
    logits = _reference_logits(reference, subject, passage, protocol, logits_cache) if reference else None
    quality = measure_quality(model, windows, model.config.vocab_size, reference=logits, progress=progress)
    return {
        **subject.facts(model.impls),
        "reference": reference,
        "protocol": protocol.describe(),
        **quality,
        "seconds": time.perf_counter() - start,
    }


def prepare(source: Source, text: str, max_windows: int | None) -> tuple[Protocol, np.ndarray]:
    """The protocol that the source's context allows on this text, and its windows [W, T] int64."""
    from quant.models import ModelConfig

    tokens = tokenize(source, text)
    protocol = whole_windows(tokens, text, ModelConfig.of(source).max_positions, max_windows)
    return protocol, cut_windows(tokens, protocol)


def tokenize(source: Source, text: str) -> np.ndarray:
    """[T] int64, with BOS where the tokenizer's model expects one. raises InputError for a model without tokenizer."""
    from qbench.runtime import Tokenizer

    if source.tokenizer is None:
        raise InputError(f"{source.spec} has no tokenizer, so no text can be evaluated; choose a model with one")
    return np.asarray(Tokenizer(source.tokenizer).encode(text), dtype=np.int64)


def read_text(path: str | Path | None, *specs: str | None) -> str:
    """The file's text, or the reference models' held-out text if one of the specs is `ref:`."""
    if path is None:
        if any(spec and spec.startswith("ref:") for spec in specs):
            from qbench.reference.corpus import heldout_text

            return heldout_text()
        raise InputError("no text to evaluate on; give a UTF-8 text file with --text")
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot read the text: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}; convert the text to UTF-8") from error


def _reference_logits(
    spec: str, subject: Subject, text: str, protocol: Protocol, cache: Path | None
) -> ReferenceLogits:
    from qbench.runtime import load_model
    from qbench.sources import open_source

    source = open_source(spec)
    unlike = source.tokenizer not in (None, subject.source.tokenizer)
    if unlike and tokens_sha256(tokenize(source, text)) != protocol.tokens_sha256:
        raise InputError(f"{subject.spec} and its reference {spec} tokenize differently; KLD needs the same tokens")
    if cache is not None:
        path = cache_path(cache, protocol, source.fingerprint())
        if path.exists():
            return CachedLogits(path)
    model = load_model(source, impl="reference", threads=subject.threads)
    return LiveLogits(model, model.config.vocab_size)
