"""`save_reference`: one run of the unquantized model, kept for many comparisons."""

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from qbench.calibration.open_subject import open_subject
from qbench.measure.metrics import Facts
from qbench.measure.quality_figures import Quality
from qbench.progress import Progress
from qbench.quality.evaluate import read_text, setting_of
from qbench.quality.kld.reference_logits import KeptLogits, default_mode, kept_bytes, save_logits
from qbench.quality.protocols.conventions import DEFAULT, make_scorings
from qbench.quality.protocols.perplexity import perplexity_statistics
from qbench.run.choices import FLOAT32
from qbench.run.options import DEFAULTS, RunOptions
from qbench.run.work import QualityWork
from qbench.runtime import load_model
from quant.errors import InputError
from quant.json_data import JsonData


@dataclass(frozen=True, slots=True)
class KeptFile(JsonData):
    """A file of logits; fp16_bytes: size of the whole logits in float16."""

    file: str
    mode: str
    k: int | None
    bytes: int
    fp16_bytes: int


@dataclass(frozen=True, slots=True)
class SavedReference(JsonData):
    """The perplexity of a model whose logits were kept, and the file that keeps them."""

    json_flat: ClassVar[tuple[str, ...]] = ("facts", "quality")

    facts: Facts
    quality: Quality
    logits: KeptFile
    seconds: float


def save_reference(
    spec: str,
    path: str | Path,
    settings: QualityWork,
    options: RunOptions = DEFAULTS,
    *,
    mode: str | None = None,
    progress: Progress | None = None,
) -> SavedReference:
    """The model's perplexity, its logits kept in `path` for `QualityWork.logits`, and the bytes they take there.

    settings  at most one protocol; empty: gptq-2048
    mode      "exact" or "top-k"; None: exact as long as that fits in 2 GiB
    raises    InputError as `evaluate`, and if the disk has no room
    """
    start, path = time.perf_counter(), Path(path)
    subject = open_subject(spec, options, progress)
    setting = setting_of(subject.source, read_text(settings.text, spec), settings.max_windows, settings.documents)
    (scoring,) = make_scorings(setting, settings.protocols or (DEFAULT,))
    model = load_model(subject.source, subject.options, impl="reference")
    vocab_size = model.config.vocab_size
    mode = mode or default_mode(scoring, vocab_size)
    size = kept_bytes(scoring, vocab_size, mode)
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}")
    free = shutil.disk_usage(path.parent).free
    if size > free:
        raise InputError(f"{path}: the logits take {size:,} bytes and the disk has {free:,}; free some, or keep top-k")
    named = {"model": spec, "fingerprint": subject.source.fingerprint()}
    nll = save_logits(path, model, scoring, vocab_size, mode=mode, named=named, progress=progress)
    kept = KeptLogits(path)
    fp16_bytes = 2 * vocab_size * len(nll)
    return SavedReference(
        facts=replace(subject, options=replace(subject.options, compute=FLOAT32)).facts(model.impls),
        quality=perplexity_statistics(nll, scoring),
        logits=KeptFile(str(path), mode, kept.header["k"], kept.num_bytes, fp16_bytes),
        seconds=time.perf_counter() - start,
    )
