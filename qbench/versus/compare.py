"""`bench --vs llama.cpp`: one GGUF file through both, phase by phase in turn, and the ratios."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cpu_kernels
from qbench.harness.clocks import check_clock
from qbench.harness.peaks import measure_peaks
from qbench.harness.quality import Progress
from qbench.harness.roofline import Peaks, Shape, roofline
from qbench.harness.speed import SpeedRun, speed_statistics
from qbench.harness.speed_case import SpeedCase
from qbench.harness.subject import Subject, open_subject
from qbench.statistics import spread
from qbench.versus.llama_cpp import LlamaCppProcess
from quant.errors import InputError

# Threads of an OpenMP region wait for the next one at full speed, some milliseconds, and ours for less: neither may do
# so while the other is measured.
SETTLE_S = 0.03
# llama.cpp's types of keys and values, by the bits that one number takes there (scales included).
KV_BITS = {"f32": 32.0, "f16": 16.0, "q8_0": 8.5, "q4_0": 4.5}
DEFAULT_KV = "kv-f16"  # as llama.cpp keeps them unless it is told otherwise
PHASES = ("pp", "tg")


def compare(
    spec: str,
    cases: list[SpeedCase],
    *,
    kv: str | None = None,
    threads: int | None = None,
    clock: str = "wall",
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Speed of both and the ratio ours / theirs, one row a case.

    spec     a GGUF file, which llama.cpp opens by itself
    kv       our KV format, by default DEFAULT_KV; llama.cpp gets its own type of as many bits
    clock    "wall", or "cpu": the time that each side's process gets, of one thread
    raises   InputError where spec is no such file, llama-cpp-python is missing, a case exceeds the context, or
             processor time is asked for of more than one thread
    """
    from qbench.runtime import load_model
    from quant.models import ModelConfig

    check_file(spec)
    subject = open_subject(spec, threads=threads, progress=progress, kv=kv or DEFAULT_KV)
    check_clock(clock, subject.threads)
    for case in cases:
        case.check_context(ModelConfig.of(subject.source).max_positions)
    model = load_model(subject.source, threads=subject.threads)
    their_kv = kv_type_of(model)
    longest = max(case.longest for case in cases)
    rows = []
    with LlamaCppProcess(str(Path(spec).expanduser()), subject.threads, longest, their_kv, clock) as theirs:
        about = {"version": theirs.version, "system": theirs.system, "kv": their_kv}
        for case in cases:
            start = time.perf_counter()
            before = cpu_kernels.measure_read_bandwidth(subject.threads)
            measured = measure_both(SpeedRun(model, model.config.vocab_size, case, clock), theirs, progress)
            bandwidths = before, cpu_kernels.measure_read_bandwidth(subject.threads)
            row = {
                **subject.facts(model.impls),
                "pp": case.pp,
                "tg": case.tg,
                "depth": case.depth,
                "batch": 1,
                "clock": clock,
            }
            row |= {"kv_bits": kv_bits(model), "llama.cpp": about, **measured}
            row |= {
                "roofline": shares(subject, model, case, measured, bandwidths),
                "load_average": list(os.getloadavg()),
            }
            rows.append({**row, "seconds": time.perf_counter() - start})
    return rows


def check_file(spec: str) -> None:
    path = Path(spec).expanduser()
    if path.suffix != ".gguf" or not path.is_file():
        raise InputError(
            f"{spec}: --vs llama.cpp needs a GGUF file that both can open; "
            f"`qbench quantize {spec} --recipe q4_k_m -o model.gguf` writes one"
        )


def kv_bits(model: Any) -> float:
    """Bits of one number of the cache, its share of the scales included."""
    config = model.config
    numbers = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    return 8 * model.new_cache(batch=1, capacity=1).bytes_per_token / numbers


def kv_type_of(model: Any) -> str:
    """llama.cpp's type that takes as many bits as ours, or the nearest."""
    bits = kv_bits(model)
    return min(KV_BITS, key=lambda name: abs(KV_BITS[name] - bits))


def measure_both(run: SpeedRun, theirs: LlamaCppProcess, progress: Progress | None) -> dict[str, Any]:
    """Seconds of every repetition and phase of both, in turn, and who is first in turn as well."""
    case, tokens = run.case, run.tokens[0].tolist()
    prompt, words = run.prompt[0].tolist(), run.words[0].tolist()
    if case.depth:
        theirs.seconds(0, tokens[: case.depth], case.depth)
    run.warm_up()
    theirs.seconds(case.depth, prompt or words[:1], max(1, len(prompt)))
    calls: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {
        "pp": (run.prefill_seconds, lambda: theirs.seconds(case.depth, prompt, len(prompt))),
        "tg": (run.decode_seconds, lambda: theirs.seconds(case.depth, words, 1)),
    }
    seconds = {phase: ([], []) for phase in PHASES}
    for repetition in range(case.repetitions):
        for phase in (phase for phase in PHASES if getattr(case, phase)):
            for side in (0, 1) if repetition % 2 == 0 else (1, 0):
                time.sleep(SETTLE_S)
                seconds[phase][side].append(calls[phase][side]())
        if progress:
            progress(repetition + 1, case.repetitions, f"repetitions at depth {case.depth}")
    ours, other = (speed_statistics(case, seconds["pp"][side], seconds["tg"][side]) for side in (0, 1))
    return {"ours": ours, "theirs": other, "ratio": {phase: ratio(*seconds[phase]) for phase in PHASES}}


def ratio(our_seconds: list[float], their_seconds: list[float]) -> dict[str, float] | None:
    """How many times as fast as theirs, repetition by repetition: {median, min, max, mad}; None where not measured."""
    pairs = [theirs / ours for ours, theirs in zip(our_seconds, their_seconds, strict=True)]
    return spread(pairs) if pairs else None


def shares(
    subject: Subject, model: Any, case: SpeedCase, measured: dict[str, Any], bandwidths: tuple[float, float]
) -> dict[str, Any]:
    """Of the roofline, for both: the same bytes over the larger of the bandwidths before and after, and operations."""
    config = model.config
    peaks = Peaks(max(bandwidths), measure_peaks(subject.threads).ops_per_s)
    shape = Shape(
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        head_dim=config.head_dim,
        kv_bytes_per_token=model.new_cache(batch=1, capacity=1).bytes_per_token,
        expert_share=config.expert_share,
    )
    found = {
        side: roofline(dict(subject.source.tensors), shape, model.impls, peaks, case, measured[side])
        for side in ("ours", "theirs")
    }
    return {
        **{side: {phase: found[side][phase] for phase in PHASES} for side in found},
        "bandwidth_bytes_per_s": bandwidths,
        "peak_ops_per_s": found["ours"]["peak_ops_per_s"],
    }
