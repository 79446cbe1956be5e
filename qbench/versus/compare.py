"""`race --vs llama.cpp`: one GGUF file through both, phase by phase in turn, and the ratios."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from qbench.calibration.open_subject import open_subject
from qbench.measure.host.conditions import check_clock
from qbench.measure.metrics import Facts
from qbench.measure.records.kept_kinds import PeerFacts, VersusRatio
from qbench.measure.speed_figures import SpeedFigures
from qbench.measure.subject import summarize_impls
from qbench.path_names import path_at
from qbench.progress import Progress
from qbench.run.options import DEFAULTS, RunOptions
from qbench.run.work import SpeedWork
from qbench.runtime import load_model
from qbench.runtime.decoder_model import DecoderModel
from qbench.speed.case_memory import check_case_memory
from qbench.speed.interleaved import interleave
from qbench.speed.machine_peaks import CurrentPeaks, measure_machine_peaks
from qbench.speed.peaks import measure_bandwidth, measure_op_peaks
from qbench.speed.roofline import Shape, least_work, linear_operands
from qbench.speed.rounds import PHASES, Rounds, Side
from qbench.speed.shares import peaks_of, phase_shares, units_of
from qbench.speed.speed import speed_statistics
from qbench.speed.speed_worker import TimedModel
from qbench.statistics.intervals import spread
from qbench.statistics.speed import speed_ratio
from qbench.versus.llama_cpp import LlamaCppProcess
from quant.errors import InputError
from quant.json_data import JsonData
from quant.models import ModelConfig
from quant.present import present

CASE_KEYS = ("model", "pp", "tg", "depth", "threads", "kv_format", "clock", "forced")
# llama.cpp's types of keys and values, by the bits that one number takes there (scales included).
KV_BITS = {"f32": 32.0, "f16": 16.0, "q8_0": 8.5, "q4_0": 4.5}
SIDES = ("ours", "theirs")
DEFAULT_KV = "kv-f16"  # llama.cpp's default


@dataclass(frozen=True, slots=True)
class BothSpeeds(JsonData):
    """ratio: phase -> ours / theirs; None for one that was not measured"""

    ours: SpeedFigures
    theirs: SpeedFigures
    ratio: dict[str, VersusRatio | None]


@dataclass(frozen=True, slots=True)
class BothShares(JsonData):
    """Shares of the roofline by phase: each round's least time over its own, the median. bandwidth: one per round"""

    ours: dict[str, float | None]
    theirs: dict[str, float | None]
    bandwidth_bytes_per_s: list[float]
    peak_ops_per_s: dict[str, float]
    units: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersusRow(JsonData):
    """One case of both.

    ran      phase -> code that runs so many tokens -> number of linears
    kv_bits  of one number of our KV cache, its share of the scales included
    """

    json_keys: ClassVar[Mapping[str, str]] = {"peer": "llama.cpp"}
    json_flat = ("facts", "speeds")
    json_omits = ("busy_before",)

    facts: Facts
    pp: int
    tg: int
    depth: int
    batch: int = 1
    clock: str
    ran: dict[str, dict[str, int]]
    kv_bits: float
    peer: PeerFacts
    speeds: BothSpeeds
    roofline: BothShares
    load_average: list[float]
    seconds: float
    busy_before: float | None = None


def compare(
    spec: str,
    cases: list[SpeedWork],
    options: RunOptions = DEFAULTS,
    *,
    clock: str = "wall",
    progress: Progress | None = None,
) -> list[VersusRow]:
    """Speed of both and the ratio ours / theirs, one row per case.

    spec     a GGUF file, which llama.cpp opens by itself
    options  threads, and our KV format, by default DEFAULT_KV; llama.cpp gets its own type of as many bits
    clock    "wall", or "cpu": the time that each side's process gets, of one thread
    raises   InputError where spec is no such file, llama-cpp-python is missing, a case exceeds the context, or
             processor time is asked for of more than one thread
    """
    check_file(spec)
    subject = open_subject(spec, replace(options, kv_format=options.kv_format or DEFAULT_KV), progress)
    check_clock(clock, subject.threads)
    for case in cases:
        case.check_context(ModelConfig.of(subject.source).max_positions)
        check_case_memory(subject.source, options, case)
    model = load_model(subject.source, subject.options)
    ours = TimedModel(model, clock)
    their_kv = kv_type_of(model)
    longest = max(case.longest for case in cases)
    rows = []
    with LlamaCppProcess(str(Path(spec).expanduser()), subject.threads, longest, their_kv, clock) as theirs:
        peer = PeerFacts(theirs.version, theirs.system, their_kv)
        for case in cases:
            start = time.perf_counter()
            measure_op_peaks(subject.threads)  # the largest counts, and each case measures them again before and after
            rounds, speeds = measure_both(ours, theirs, case, subject.threads, progress)
            tensors = dict(subject.source.tensors)
            work = least_work(tensors, Shape.of(model), linear_operands(tensors, model), case)
            machine_peaks = measure_machine_peaks(subject.threads, speeds.ours)
            row = VersusRow(
                facts=subject.facts(model.impls),
                pp=case.pp,
                tg=case.tg,
                depth=case.depth,
                clock=clock,
                ran=ran(model.impls, case),
                kv_bits=kv_bits(model),
                peer=peer,
                speeds=speeds,
                roofline=shares(work, case, rounds, machine_peaks),
                load_average=list(os.getloadavg()),
                seconds=0.0,
            )
            rows.append(replace(row, seconds=time.perf_counter() - start))
    return rows


def ran(impls: dict[str, str], case: SpeedWork) -> dict[str, dict[str, int]]:
    """phase -> the implementation of this number of tokens, and how many linears"""
    tokens = {"pp": case.pp, "tg": 1}
    return {
        phase: summarize_impls({name: path_at(impl, tokens[phase]) for name, impl in impls.items()}) for phase in PHASES
    }


def check_file(spec: str) -> None:
    path = Path(spec).expanduser()
    if path.suffix != ".gguf" or not path.is_file():
        raise InputError(
            f"{spec}: --vs llama.cpp needs a GGUF file that both can open; "
            f"`qbench quantize {spec} --recipe q4_k_m -o model.gguf` writes one"
        )


def kv_bits(model: DecoderModel) -> float:
    """Bits of one number of the cache, its share of the scales included."""
    config, cache = model.config, model.new_cache(batch=1, capacity=1)
    numbers = present(config.mla).latent_size if cache.latents else 2 * config.num_kv_heads * config.head_dim
    return 8 * cache.bytes_per_token / (config.num_layers * numbers)


def kv_type_of(model: DecoderModel) -> str:
    """llama.cpp's type that takes as many bits as ours, or the nearest."""
    bits = kv_bits(model)
    return min(KV_BITS, key=lambda name: abs(KV_BITS[name] - bits))


def measure_both(
    ours: Side, theirs: Side, case: SpeedWork, threads: int, progress: Progress | None
) -> tuple[Rounds, BothSpeeds]:
    """The rounds, phase by phase in turn; figures of both, and the ratio ours / theirs of those rounds."""
    bandwidth = partial(measure_bandwidth, threads)
    rounds = interleave([ours, theirs], case, threads=threads, probe=bandwidth, progress=progress)
    mine, their = (speed_statistics(case, rounds, side) for side in range(len(SIDES)))
    return rounds, BothSpeeds(mine, their, {phase: ratio(rounds, phase) for phase in PHASES})


def ratio(rounds: Rounds, phase: str) -> VersusRatio | None:
    """None for a phase that was not measured"""
    if phase not in rounds.of:
        return None
    ours, theirs = (rounds.steady(phase, side) for side in (0, 1))
    pairs = [their / our for our, their in zip(ours, theirs, strict=True)]
    interval = speed_ratio([1 / seconds for seconds in theirs], [1 / seconds for seconds in ours]).interval
    of = spread(pairs)
    return VersusRatio(of["median"], of["mad"], of["min"], of["max"], interval)


def shares(work: dict[str, dict[str, float]], case: SpeedWork, rounds: Rounds, machine: CurrentPeaks) -> BothShares:
    """Shares of the roofline, of both, as in `qbench.speed.shares`."""
    ours, theirs = (phase_shares(work, case, rounds, side, machine) for side in range(len(SIDES)))
    return BothShares(ours, theirs, rounds.probed, peaks_of(work, machine.ops_per_s), units_of(work, machine))
