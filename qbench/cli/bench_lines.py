"""The lines of `qbench bench` and `qbench race` for people."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Protocol

from qbench.cli.output import print_result, print_warning, readable_bytes
from qbench.cli.quality_lines import prefill_lines
from qbench.measure.host.conditions import busy_warning
from qbench.measure.metrics import Facts, Memory, Metrics
from qbench.measure.records.kept_kinds import VersusCase, VersusMetrics, VersusRatio
from qbench.measure.speed_figures import Energy, Offload, Roofline, Samples, SpeedFigures
from qbench.speed.peaks import unmeasured_warning
from qbench.statistics.estimate import ALPHA, Estimate
from qbench.statistics.verdict import needed_samples
from quant.present import present

PHASES = ("pp", "tg")
STOPPED = {"narrow": "every interval is narrow enough", "budget": "the budget is spent", "repetitions": "as asked for"}


class Work(Protocol):
    """The sizes of a speed: of a measured model, or of a case."""

    @property
    def pp(self) -> int | None: ...
    @property
    def tg(self) -> int | None: ...
    @property
    def depth(self) -> int | None: ...
    @property
    def batch(self) -> int | None: ...


def print_row(row: Metrics, as_json: bool, number: int) -> None:
    """Print a line of JSON, or a block of pairs and its warnings."""
    print_result(row, readable, as_json, number)
    if not as_json:
        print_warning(busy_warning(others_share(row)))
        print_warning(unmeasured_warning(present(present(row.facts).threads)) if lacks_peak(row) else None)


def readable(result: Metrics) -> dict[str, str | None]:
    """Medians with their intervals, share of the roofline, ratio to the first, how the machine was, memory by part."""
    facts, speed, memory = present(result.facts), present(result.speed), present(result.memory)
    figures, roofline = present(speed.figures), present(speed.roofline)
    peak, baseline = (readable_bytes(present(size)) for size in (memory.peak_rss_bytes, memory.baseline_rss_bytes))
    predicted = {part: readable_bytes(value) for part, value in present(speed.predicted_bytes).items()}
    shares = {"pp": roofline.pp, "tg": roofline.tg}
    return {
        "model": present(facts.model) + (f" as {facts.recipe}" if facts.recipe else ""),
        "kernels": kernels_line(facts),
        **prefill_lines(facts),
        **{test_name(speed, phase): throughput(figures, shares[phase], phase) for phase in PHASES},
        **ratio_lines(result),
        **launch_lines(result),
        "ttft, tpot": f"{milliseconds(figures.ttft_ms)}, {milliseconds(figures.tpot_ms)}",
        "measured": measured_line(present(figures.samples), speed.clock),
        "machine": machine_line(result),
        **units_line(roofline),
        "energy": energy_line(speed, present(figures.energy)),
        "bits_per_weight": f"{facts.bits_per_weight:.4f}",
        "peak_rss": f"{peak} ({baseline} before the model{at_once(memory)})",
        **offload_lines(speed.offload),
        **({} if memory.peak_device_bytes is None else {"peak_device": readable_bytes(memory.peak_device_bytes)}),
        "predicted": ", ".join(f"{part} {value}" for part, value in predicted.items()),
        "kv_bytes_per_token": readable_bytes(present(speed.kv_bytes_per_token)),
        **tier_lines(figures),
    }


def at_once(memory: Memory) -> str:
    return "" if memory.cases_at_once is None else f"; of {memory.cases_at_once} cases at once"


def tier_lines(figures: SpeedFigures) -> dict[str, str]:
    blocks, size, hits = figures.kv_blocks_loaded, figures.kv_bytes_read, figures.kv_hit_share
    if blocks is None or size is None or hits is None:
        return {}
    return {"kv_disk": f"{blocks:.1f} blocks, {readable_bytes(round(size))} read per step, hit share {hits:.3f}"}


def offload_lines(offload: Offload | None) -> dict[str, str]:
    if offload is None:
        return {}
    limit, pinned, read = (
        readable_bytes(present(size))
        for size in (offload.memory_limit_bytes, offload.pinned_bytes, offload.streamed_bytes)
    )
    return {"memory limit": f"{limit}: {pinned} of weights stay, {read} are read per step"}


def test_name(work: Work, phase: str) -> str:
    """ "pp512", "tg128@4096 x 16": at a depth, of a batch"""
    depth = f"@{work.depth}" if work.depth else ""
    batch = f" x {work.batch}" if work.batch and work.batch > 1 else ""
    return f"{phase}{getattr(work, phase)}{depth}{batch}"


def kernels_line(facts: Facts, threads: int | None = None) -> str:
    """threads: if the facts do not have them"""
    impls = ", ".join(f"{name} x {count}" for name, count in (facts.impls or {}).items())
    others = ", ".join(f"{op} {name}" for op, name in (facts.kernels or {}).items())
    return f"{impls}{others and '; ' + others}; isa {facts.isa}, {threads or facts.threads} thread(s)"


def throughput(figures: SpeedFigures, share: float | None, phase: str) -> str | None:
    """ "123.4 tok/s (95 % 121.0 to 125.9, 64 % of the roofline)", or None for a phase that was not measured."""
    value = figures.pp_tok_s if phase == "pp" else figures.tg_tok_s
    if value is None:
        return None
    samples, interval = present(figures.samples).of(phase), (figures.interval or {}).get(f"{phase}_tok_s")
    ends = f"95 % {interval[0]:.2f} to {interval[1]:.2f}" if interval else f"{min(samples):.2f} to {max(samples):.2f}"
    bound = f", {100 * share:.0f} % of the roofline" if share is not None else ""
    return f"{value:.2f} tok/s ({ends}{bound})"


def milliseconds(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f} ms"


def ratio_lines(result: Metrics) -> dict[str, str]:
    """How many times as fast as the first of several models, for each of the others."""
    found, few = result.ratio or {}, None
    if not found:
        return {}
    if result.launches:
        count, unit = len(result.launches), "launches"
    else:
        from qbench.statistics.autocorrelation import told_of_few  # imports numpy

        count, unit = num_rounds(samples_of(result)), "rounds"
        few = told_of_few(count) if any(ratio["low"] is not None for ratio in found.values()) else None
    base = result.ratio_to or "the first"
    told = {phase: ratio_text(ratio, base) + decided_by(ratio, count, unit) for phase, ratio in found.items()}
    lines = {f"{phase} ratio": text for phase, text in told.items()}
    return lines | ({"few rounds": few} if few else {})


def decided_by(ratio: Mapping[str, float | None], rounds: int, unit: str) -> str:
    """ "; undecided: 120 rounds would decide a ratio as this one"; "" for a ratio that is decided or has no interval"""
    estimate = Estimate.from_json(ratio)
    if estimate.low is None or estimate.high is None:
        return ""
    if not estimate.low <= 1 <= estimate.high:
        if estimate.p_value is None or estimate.p_value < ALPHA:
            return ""
        from qbench.statistics.waves import CLEAR_ROUNDS  # imports numpy

        return f"; undecided: a slow drift of one model hides in fewer than {CLEAR_ROUNDS} rounds"
    needed = needed_samples(rounds, estimate, neutral=1.0)
    return "; undecided" + ("" if needed is None else f": {needed} {unit} would decide a ratio like this one")


def launch_lines(result: Metrics) -> dict[str, str]:
    """ "3 processes: pp 5012, 5130, 5077; tg 404.1, 399.8, 410.2 tok/s": the median of each"""
    speed, launches = present(result.speed), result.launches or []
    parts = []
    for phase in PHASES:
        tokens = (speed.batch or 1) * (getattr(speed, phase) or 0)
        rates = [tokens / median(launch.seconds[phase][0]) for launch in launches if launch.seconds.get(phase)]
        parts += [f"{phase} {', '.join(f'{rate:.4g}' for rate in rates)}"] if rates else []
    return {"launches": f"{len(launches)} processes: {'; '.join(parts)} tok/s"} if parts else {}


def ratio_text(ratio: Mapping[str, float | None], base: str) -> str:
    text = f"{ratio['value']:.3f} of {base}"
    if ratio["low"] is None:
        return f"{text} (one sample: no interval)"
    return f"{text} (95 % {ratio['low']:.3f} to {ratio['high']:.3f}, p {ratio['p_value']:.2g})"


def samples_of(result: Metrics) -> Samples:
    return present(present(present(result.speed).figures).samples)


def measured_line(samples: Samples, clock: str | None) -> str:
    """ "12 rounds after 2 of warm-up, stopped: the budget is spent; outliers: 1 of pp, 81.2 tok/s" """
    measured = [phase for phase in PHASES if samples.of(phase)]
    warm_up = max(len(present(samples.warm_up)[f"{phase}_tok_s"]) for phase in measured)
    of_process = "; processor time" if clock == "cpu" else ""
    outliers = "; ".join(text for phase in measured for text in outliers_of(samples, phase)) or "none"
    why, rounds = STOPPED[present(samples.stopped)], num_rounds(samples)
    return f"{rounds} rounds after {warm_up} of warm-up, stopped: {why}{of_process}; outliers: {outliers}"


def num_rounds(samples: Samples) -> int:
    """After the warm-up of every phase that was measured."""
    return min(len(samples.of(phase)) for phase in PHASES if samples.of(phase))


def outliers_of(samples: Samples, phase: str) -> list[str]:
    """ "3 of pp, 81.2 to 104.0 tok/s": outliers, which still count in the median"""
    values = [samples.of(phase)[index] for index in present(samples.outliers)[f"{phase}_tok_s"]]
    if not values:
        return []
    span = f"{values[0]:.1f}" if len(values) == 1 else f"{min(values):.1f} to {max(values):.1f}"
    return [f"{len(values)} of {phase}, {span} tok/s"]


def machine_line(result: Metrics) -> str | None:
    """Medians over all samples; values that the system does not report are left out."""
    roofline, samples = present(present(result.speed).roofline), samples_of(result)
    parts = [bandwidth_line(present(roofline.bandwidths_bytes_per_s))]
    for values, text in (
        (samples.clock_mhz, "{:.0f} MHz"),
        (samples.temperature_c, "{:.0f} C"),
        (samples.load, "load {:.2f}"),
        (samples.busy_by_others, "others took {:.0%}"),
    ):
        value = typical(values)
        parts += [] if value is None else [text.format(value)]
    return ", ".join(parts)


def bandwidth_line(rounds: Sequence[float]) -> str:
    """rounds: bytes per second, one per round; empty if a cache holds the bytes of a decode step"""
    if not rounds:
        return "a cache holds the bytes of a step"
    return f"{readable_bytes(min(rounds))}/s to {readable_bytes(max(rounds))}/s read in the rounds"


def units_line(roofline: Roofline) -> dict[str, str]:
    """ "int8 by amx int8 (14.2 TOPS), bf16 by amx bf16 (7.1 TOPS)": operands and the unit that bounds them"""
    if roofline.units is None:
        return {}
    rates = present(roofline.peak_ops_per_s)
    units = (f"{job} by {unit} ({rates[job] / 1e12:.3g} TOPS)" for job, unit in roofline.units.items())
    return {"strongest units": ", ".join(units) or "n/a"}


def typical(condition: Mapping[str, list[float | None]] | None) -> float | None:
    """The median over all samples that know it."""
    moments = [value for values in (condition or {}).values() for value in values if value is not None]
    return median(moments) if moments else None


def others_share(result: Metrics) -> float:
    """Usual share of the machine that other processes took; 0 if the system does not report it."""
    return typical(samples_of(result).busy_by_others) or 0.0


def lacks_peak(result: Metrics) -> bool:
    """Whether an arithmetic of the case has no peak, so that no share of the roofline is known."""
    roofline = present(present(result.speed).roofline)
    return not set(roofline.peak_ops_per_s or ()) >= {*(roofline.pp_ops or ()), *(roofline.tg_ops or ())}


def energy_line(work: Work, energy: Energy) -> str:
    """Joules per token beyond idle, of all counters together; n/a with the reason."""
    if energy.joules is None:
        return f"n/a: {energy.reason}"
    counts = {phase: present(work.batch) * getattr(work, phase) for phase in PHASES}
    spent = ", ".join(f"{phase} {sum(by.values()) / counts[phase]:.3g} J" for phase, by in energy.joules.items())
    return f"{spent} a token beyond idle ({', '.join(energy.idle_watts or ())})"


def readable_comparison(case: VersusCase, found: VersusMetrics) -> dict[str, str | None]:
    """Both, and how many times as fast ours is, each with its interval."""
    ours, theirs, roofline = present(found.ours), present(found.theirs), present(found.roofline)
    bandwidths, peer = present(roofline.bandwidth_bytes_per_s), present(found.peer)
    lines: dict[str, str | None] = {
        "model": case.model,
        "kernels": kernels_line(present(found.facts), case.threads),
        "llama.cpp": f"{peer.build}, {case.threads} thread(s)",
        "KV cache": f"{found.kv_bits:.3g} bits here, {peer.kv_format} there",
        "bandwidth": bandwidth_line(bandwidths),
        "measured": measured_line(present(ours.samples), None),
    }
    for phase in PHASES:
        test, ratio = f"{phase}{getattr(case, phase)}@{case.depth}", present(found.ratio)[phase]
        for name, figures, shares in (("qbench", ours, roofline.ours), ("llama.cpp", theirs, roofline.theirs)):
            lines[f"{test} {name}"] = throughput(figures, present(shares)[phase], phase)
        lines[f"{test} ratio"] = ratio and versus_ratio(ratio)
    return lines


def versus_ratio(ratio: VersusRatio) -> str:
    """ "1.31 (95 % 1.28 to 1.34)"; with the rounds' range if they are too few for an interval"""
    if ratio.interval:
        return f"{ratio.median:.2f} (95 % {ratio.interval[0]:.2f} to {ratio.interval[1]:.2f})"
    return f"{ratio.median:.2f} ({ratio.min:.2f} to {ratio.max:.2f})"
