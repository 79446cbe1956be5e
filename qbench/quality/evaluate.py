"""`evaluate`: the quality of one model as a dictionary, from a spec to the numbers."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qbench.cache_kinds import DYNAMIC
from qbench.calibration.open_subject import open_subject
from qbench.devices import CPU
from qbench.products import AUTO
from qbench.progress import Progress
from qbench.quality.open_reference import kept_logits, open_reference
from qbench.quality.protocols.conventions import DEFAULT, make_plans
from qbench.quality.protocols.documents import read_passage
from qbench.quality.protocols.plan import Plan, Setting
from qbench.quality.quality import Reference, measure_quality
from qbench.reference.corpus import heldout_text
from qbench.runtime import load_model
from quant.atomic import atomic_file
from quant.errors import InputError
from quant.models import ModelConfig
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
    protocols: Sequence[str] = (),
    documents: str | None = None,
    logits: Path | None = None,
    cache_kind: str = DYNAMIC,
    products: str = AUTO,
    device: str = CPU,
) -> dict[str, Any]:
    """Perplexity under named protocols, and with a reference the divergence from its logits.

    text          a UTF-8 file; None takes the held-out text of a ref: model (or of a ref: reference)
    recipe        measure the model as this recipe would make it, quantized tensor by tensor while loading
    max_windows   how many, spread over the text; documents for protocols that score those
    kv            keep keys and values in this format instead of the model's own
    logits_cache  folder where a sweep keeps the reference's logits, the text's tokens and the held-out text itself
    protocols     names as `conventions.make_plans` knows them; none: what the file of logits has, else gptq-2048
    documents     how the text is divided, one of documents.HOW; None: as it looks
    logits        a file of the reference's logits, instead of the reference
    cache_kind    of its caches, as qbench.cache_kinds has it: what a query sees
    products      how the model multiplies, one of qbench.products; the reference is float32 always
    device        where the model runs, one of qbench.devices; the reference runs on the CPU
    returns       the row's keys, with interval and counts beside each statistic: those of the first protocol, and all
                  by name in `protocols` where there are more
    raises        InputError for a missing text or tokenizer, a reference of another vocabulary, or a file of logits
                  that was made from another text or under another protocol
    """
    start = time.perf_counter()
    kept = kept_logits(logits, reference)
    if kept is not None and not protocols:
        protocols, max_windows = (kept.header["protocol"]["name"],), max_windows or kept.limit
        documents = documents or kept.header["protocol"].get("documents")
    open_start = time.perf_counter()
    subject = open_subject(spec, recipe, threads, progress, kv=kv, products=products, device=device)
    open_seconds = time.perf_counter() - open_start
    reference = kept.header["model"] if kept else reference
    passage = read_text(text, spec, reference, kept=logits_cache)
    setting = setting_of(subject.source, passage, max_windows, documents, logits_cache)
    plans = make_plans(setting, protocols or (DEFAULT,))
    if kept is not None:
        kept.require(plans)
    load_start = time.perf_counter()
    how = {"products": products, "kind": cache_kind, "threads": subject.threads, "device": device}
    model = load_model(subject.source, **how)
    load_seconds = open_seconds + time.perf_counter() - load_start
    beside = None
    if kept is not None:
        beside = Reference(kept.vocab_size, kept=[kept])
    elif reference is not None:
        beside = open_reference(reference, subject, setting, plans, logits_cache)
    results = measure_quality(model, plans, model.config.vocab_size, reference=beside, progress=progress)
    pairs = zip(plans, results, strict=True)
    told = [{"protocol": plan.protocol.of(products).describe(), **result} for plan, result in pairs]
    return {
        **subject.facts(model.impls, model.kernels),
        "reference": reference,
        **told[0],
        **({"protocols": {result["protocol"]["name"]: result for result in told}} if len(told) > 1 else {}),
        "load_seconds": load_seconds,
        "seconds": time.perf_counter() - start,
    }


def prepare(source: Source, text: str, max_windows: int | None, protocols: Sequence[str] = (DEFAULT,)) -> list[Plan]:
    """What the protocols score of this text, by the source's tokenizer and context; raises InputError as `evaluate`"""
    return make_plans(setting_of(source, text, max_windows), protocols)


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

    kept     folder where the held-out text lies once it is written; it may be lost at any moment
    """
    if path is None:
        if any(spec and spec.startswith("ref:") for spec in specs):
            return _heldout_text(kept)
        raise InputError("no text to evaluate on; give a UTF-8 text file with --text")
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot read the text: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}; convert the text to UTF-8") from error


def _heldout_text(kept: Path | None) -> str:
    if kept is None:
        return heldout_text()
    path = kept / "heldout.txt"
    if not path.exists():
        with atomic_file(path) as fresh:
            fresh.write_text(heldout_text(), encoding="utf-8", newline="")
    return path.read_text(encoding="utf-8")
