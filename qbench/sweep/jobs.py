"""The jobs of a sweep, each a function of plain JSON values that runs in a worker of its own."""

import shutil
import time
from pathlib import Path
from typing import Any

from qbench.cache_kinds import DYNAMIC
from qbench.calibration.options import CalibrationOptions
from qbench.devices import CPU
from qbench.measure.host.commit import QUANTIZING, code_hash, code_version
from qbench.measure.host.machine import machine
from qbench.measure.host.memory import peak_rss_bytes
from qbench.products import AUTO
from qbench.progress import Progress
from qbench.quality.protocols.conventions import DEFAULT, make_plans
from quant.errors import InputError
from quant.models import ModelConfig
from quant.source import Source

# Seconds of the whole, of them in passes that are timed, in loading the model, and in measuring the machine.
SUMMED = ("seconds", "timed_seconds", "load_seconds", "ceilings_seconds")


def open_unchanged(model: str, fingerprint: str) -> Source:
    """raises InputError if the model is no longer the one that the sweep's rows are about to name"""
    from qbench.sources import open_source

    source = open_source(model)
    if source.fingerprint() != fingerprint:
        raise InputError(f"{model} changed while the sweep ran; start the sweep again to measure the new one")
    return source


def reference(
    model: str,
    fingerprint: str,
    eval: dict[str, Any],
    threads: int,
    folder: str,
    progress: Progress,
) -> dict[str, Any]:
    """Run the unquantized model over the text and keep its logits in `folder`, where they are not yet.

    Whole where they fit, else as top-k: then each row's `kld_reference` tells how far its divergence may be off.

    eval      as `measure` takes it
    returns   {kept: names of protocols}; under the others, which the disk has no room for, each case runs the reference
              beside its model
    """
    from qbench.quality.evaluate import read_text, setting_of
    from qbench.quality.kld.reference_logits import cache_path, mode_that_fits, save_logits
    from qbench.runtime import load_model

    source, kept = open_unchanged(model, fingerprint), Path(folder)
    setting = setting_of(source, read_text(eval["text"], model, kept=kept), eval["max_windows"], kept=kept)
    plans = make_plans(setting, eval.get("protocols") or (DEFAULT,))
    vocab_size = ModelConfig.of(source).vocab_size
    named = {"model": model, "fingerprint": fingerprint}
    paths = [cache_path(kept, plan.protocol, fingerprint) for plan in plans]
    absent = [(plan, path) for plan, path in zip(plans, paths, strict=True) if not path.exists()]
    loaded = load_model(source, impl="reference", threads=threads) if absent else None
    for plan, path in absent:
        mode = mode_that_fits(plan, vocab_size, room=shutil.disk_usage(folder).free // 2)
        if mode is not None:
            save_logits(path, loaded, plan, vocab_size, mode=mode, named=named, progress=progress)
    return {"kept": [plan.protocol.name for plan, path in zip(plans, paths, strict=True) if path.exists()]}


def quantize(
    model: str,
    fingerprint: str,
    recipe: str,
    calibration: dict[str, Any],
    threads: int,
    folder: str,
    progress: Progress,
) -> dict[str, Any]:
    """Write the artifact of one recipe into `folder`.

    calibration   fields of CalibrationOptions
    returns       {file: its name there, code: which wrote it, quantize_seconds, quantize_peak_rss_bytes}
    """
    from qbench.calibration.write import write_quantized
    from qbench.runtime import set_threads
    from quant.artifacts import make_artifact_job
    from quant.artifacts.output import artifact_name
    from quant.recipes import get_recipe

    named = get_recipe(recipe)
    source = open_unchanged(model, fingerprint)
    set_threads(threads)
    start = time.perf_counter()
    job = make_artifact_job(source, named, Path(folder) / artifact_name("model", named))
    write_quantized(job, CalibrationOptions(**calibration), threads=threads, progress=progress)
    return {
        "file": job.output.path.name,
        "code": code_hash(QUANTIZING),
        "quantize_seconds": time.perf_counter() - start,
        "quantize_peak_rss_bytes": peak_rss_bytes(),
    }


def measure(
    artifact: str,
    model: str,
    eval: dict[str, Any] | None,
    bench: dict[str, Any] | None,
    kv: str | None,
    threads: int,
    logits: str,
    progress: Progress,
    tasks: dict[str, Any] | None = None,
    products: str = AUTO,
    ceilings: dict[str, Any] | None = None,
    cache_kind: str = DYNAMIC,
    device: str = CPU,
) -> dict[str, Any]:
    """Speed and memory first, while the process holds nothing else, then quality against the unquantized model.

    eval      {text, max_windows, protocols} of `evaluate`; None: not measured
    bench     fields of SpeedCase; None: not measured
    kv        format of keys and values; None: the artifact's own
    tasks     fields of TaskSettings; None: not measured
    products  how the model multiplies, one of qbench.products
    ceilings  of the machine, as `bench` takes them
    cache_kind  of its caches, as qbench.cache_kinds has it
    device    where the model runs, one of qbench.devices
    """
    from qbench.quality.evaluate import evaluate
    from qbench.speed.bench import bench as run_bench
    from qbench.tasks.evaluate import evaluate_tasks
    from qbench.tasks.settings import TaskSettings

    parts = []
    how = {"kv": kv, "cache_kind": cache_kind, "products": products, "device": device}
    how |= {"threads": threads, "progress": progress}
    if bench is not None:
        parts.append(run_bench(artifact, ceilings=ceilings, **bench, **how))
    if eval is not None:
        parts.append(evaluate(artifact, reference=model, logits_cache=Path(logits), **eval, **how))
    if tasks is not None:
        told = evaluate_tasks(artifact, TaskSettings(**tasks), **how)
        parts.append(told | {"timed_seconds": told["seconds"]})  # lm-eval's own time is not told apart
    sums = {name: sum(part.get(name, 0.0) for part in parts) for name in SUMMED}
    return {name: value for part in parts for name, value in part.items()} | sums


def probe(**arguments: Any) -> dict[str, Any]:
    from qbench.sweep.probe import probe_model

    return probe_model(**arguments)


def preload() -> None:
    """Loads what the jobs import, and says which code and machine that is: an edit made later is of the next worker."""
    import scipy.special

    from qbench.calibration import write
    from qbench.quality import evaluate
    from qbench.runtime import load_model
    from qbench.speed import bench
    from qbench.tasks import evaluate as evaluate_tasks

    assert all((write, bench, evaluate, evaluate_tasks, load_model, scipy.special))
    code_version()
    code_hash(QUANTIZING)
    machine()


JOBS = {"reference": reference, "quantize": quantize, "measure": measure, "probe": probe}
