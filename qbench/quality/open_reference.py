"""The reference of an evaluation: the unquantized model next to it, or logits kept from an earlier run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from qbench.measure.subject import Subject
from qbench.quality.kld.reference_logits import KeptLogits, cache_path
from qbench.quality.protocols.scoring import Scoring, Setting
from qbench.quality.quality import Reference
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.sources import open_source
from quant.errors import InputError
from quant.models import ModelConfig


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
