"""`save_reference`: one run of the unquantized model, kept for many comparisons."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qbench.calibration.open_subject import open_subject
from qbench.progress import Progress
from qbench.quality.evaluate import read_text, setting_of
from qbench.quality.kld.reference_logits import KeptLogits, default_mode, kept_bytes, save_logits
from qbench.quality.protocols.conventions import DEFAULT, make_plans
from qbench.quality.protocols.perplexity import perplexity_statistics
from qbench.runtime import load_model
from quant.errors import InputError


def save_reference(
    spec: str,
    path: str | Path,
    *,
    text: str | Path | None = None,
    protocols: Sequence[str] = (),
    max_windows: int | None = None,
    documents: str | None = None,
    mode: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The model's perplexity, its logits kept in `path` for `evaluate(logits=...)`, and what they take there.

    protocols at most one name; none: gptq-2048
    mode      "exact" or "top-k"; None: exact as long as that fits in 2 GiB
    raises    InputError as `evaluate`, and where the disk has no room
    """
    start, path = time.perf_counter(), Path(path)
    subject = open_subject(spec, threads=threads, progress=progress)
    (plan,) = make_plans(
        setting_of(subject.source, read_text(text, spec), max_windows, documents), protocols or (DEFAULT,)
    )
    model = load_model(subject.source, impl="reference", threads=subject.threads)
    vocab_size = model.config.vocab_size
    mode = mode or default_mode(plan, vocab_size)
    size = kept_bytes(plan, vocab_size, mode)
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}")
    free = shutil.disk_usage(path.parent).free
    if size > free:
        raise InputError(f"{path}: the logits take {size:,} bytes and the disk has {free:,}; free some, or keep top-k")
    named = {"model": spec, "fingerprint": subject.source.fingerprint()}
    nll = save_logits(path, model, plan, vocab_size, mode=mode, named=named, progress=progress)
    fp16_bytes = 2 * vocab_size * len(nll)
    return {
        **subject.facts(model.impls),
        "protocol": plan.protocol.describe(),
        **perplexity_statistics(nll, plan),
        "logits": {"file": str(path), **KeptLogits(path).describe(), "fp16_bytes": fp16_bytes},
        "seconds": time.perf_counter() - start,
    }
