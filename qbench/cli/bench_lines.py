"""The lines of `qbench bench` for people."""

from statistics import median
from typing import Any

from qbench.cli.output import readable_bytes
from qbench.statistics.autocorrelation import told_of_few

PHASES = ("pp", "tg")
STOPPED = {"narrow": "every interval is narrow enough", "budget": "the budget is spent", "repetitions": "as asked for"}


def readable(result: dict[str, Any]) -> dict[str, str | None]:
    """Medians with their intervals, share of the roofline, ratio to the first, how the machine was, memory by part."""
    peak, baseline = readable_bytes(result["peak_rss_bytes"]), readable_bytes(result["baseline_rss_bytes"])
    predicted = {part: readable_bytes(value) for part, value in result["predicted_bytes"].items()}
    return {
        "model": result["model"] + (f" as {result['recipe']}" if result["recipe"] else ""),
        "kernels": kernels_line(result),
        **{test_name(result, phase): throughput(result, phase) for phase in PHASES},
        **ratio_lines(result),
        "ttft, tpot": f"{milliseconds(result['ttft_ms'])}, {milliseconds(result['tpot_ms'])}",
        "measured": measured_line(result),
        "machine": machine_line(result),
        "energy": energy_line(result),
        "bits_per_weight": f"{result['bits_per_weight']:.4f}",
        "peak_rss": f"{peak} ({baseline} before the model)",
        **device_memory_line(result),
        "predicted": ", ".join(f"{part} {value}" for part, value in predicted.items()),
        "kv_bytes_per_token": readable_bytes(result["kv_bytes_per_token"]),
    }


def device_memory_line(result: dict[str, Any]) -> dict[str, str]:
    """Of a GPU, what its memory held at most."""
    peak = result.get("peak_device_bytes")
    return {} if peak is None else {"peak_device": readable_bytes(peak)}


def test_name(result: dict[str, Any], phase: str) -> str:
    """ "pp512", "tg128@4096 x 16": at a depth, of a batch"""
    depth = f"@{result['depth']}" if result["depth"] else ""
    return f"{phase}{result[phase]}{depth}" + (f" x {result['batch']}" if result["batch"] > 1 else "")


def kernels_line(result: dict[str, Any]) -> str:
    impls = ", ".join(f"{name} x {count}" for name, count in result["impls"].items())
    beside = ", ".join(f"{op} {name}" for op, name in result.get("kernels", {}).items())
    return f"{impls}{beside and '; ' + beside}; isa {result['isa']}, {result['threads']} thread(s)"


def throughput(result: dict[str, Any], phase: str) -> str | None:
    """ "123.4 tok/s (95 % 121.0 to 125.9, 64 % of the roofline)", or None where the phase was not measured."""
    value = result[f"{phase}_tok_s"]
    if value is None:
        return None
    samples, interval = result["samples"][f"{phase}_tok_s"], result["interval"][f"{phase}_tok_s"]
    ends = f"95 % {interval[0]:.2f} to {interval[1]:.2f}" if interval else f"{min(samples):.2f} to {max(samples):.2f}"
    share = result["roofline"][phase]
    bound = f", {100 * share:.0f} % of the roofline" if share is not None else ""
    return f"{value:.2f} tok/s ({ends}{bound})"


def milliseconds(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f} ms"


def ratio_lines(result: dict[str, Any]) -> dict[str, str]:
    """How many times as fast as the first of several, where this is another of them."""
    found = result.get("ratio") or {}
    few = (
        told_of_few(num_rounds(result["samples"]))
        if any(ratio["low"] is not None for ratio in found.values())
        else None
    )
    return {f"{phase} ratio": ratio_text(ratio) for phase, ratio in found.items()} | (
        {"few rounds": few} if few else {}
    )


def ratio_text(ratio: dict[str, float]) -> str:
    if ratio["low"] is None:
        return f"{ratio['value']:.3f} of the first (one sample: no interval)"
    return (
        f"{ratio['value']:.3f} of the first (95 % {ratio['low']:.3f} to {ratio['high']:.3f}, p {ratio['p_value']:.2g})"
    )


def measured_line(result: dict[str, Any]) -> str:
    """ "12 rounds after 2 of warm-up, stopped: the budget is spent; outliers: 1 of pp, 81.2 tok/s" """
    samples = result["samples"]
    measured = [phase for phase in PHASES if samples[f"{phase}_tok_s"]]
    rounds = num_rounds(samples)
    warm_up = max(len(samples["warm_up"][f"{phase}_tok_s"]) for phase in measured)
    clock = "; processor time" if result.get("clock") == "cpu" else ""
    outliers = "; ".join(text for phase in measured for text in outliers_of(samples, f"{phase}_tok_s", phase)) or "none"
    why = STOPPED[samples["stopped"]]
    return f"{rounds} rounds after {warm_up} of warm-up, stopped: {why}{clock}; outliers: {outliers}"


def num_rounds(samples: dict[str, Any]) -> int:
    """After the warm-up of every phase that was measured."""
    return min(len(samples[f"{phase}_tok_s"]) for phase in PHASES if samples[f"{phase}_tok_s"])


def outliers_of(samples: dict[str, Any], key: str, phase: str) -> list[str]:
    """ "3 of pp, 81.2 to 104.0 tok/s": those that lie far off still count in the median"""
    values = [samples[key][index] for index in samples["outliers"][key]]
    if not values:
        return []
    span = f"{values[0]:.1f}" if len(values) == 1 else f"{min(values):.1f} to {max(values):.1f}"
    return [f"{len(values)} of {phase}, {span} tok/s"]


def machine_line(result: dict[str, Any]) -> str | None:
    """Medians over all samples; what the system does not say is left out."""
    bandwidths = " and ".join(readable_bytes(value) for value in result["roofline"]["bandwidths_bytes_per_s"])
    parts = [f"{bandwidths}/s read before and after"]
    for name, text in (
        ("clock_mhz", "{:.0f} MHz"),
        ("temperature_c", "{:.0f} C"),
        ("load", "load {:.2f}"),
        ("busy_by_others", "others took {:.0%}"),
    ):
        value = typical(result, name)
        parts += [] if value is None else [text.format(value)]
    return ", ".join(parts)


def typical(result: dict[str, Any], condition: str) -> float | None:
    """The median over all samples that know it."""
    moments = [value for values in result["samples"][condition].values() for value in values if value is not None]
    return median(moments) if moments else None


def others_share(result: dict[str, Any]) -> float:
    """What others took of the machine, as a rule; 0 where the system does not say."""
    return typical(result, "busy_by_others") or 0.0


def energy_line(result: dict[str, Any]) -> str:
    """Joules a token beyond idle, of all counters together; n/a with the reason."""
    energy = result["energy"]
    if energy["joules"] is None:
        return f"n/a: {energy['reason']}"
    counts = {phase: result["batch"] * result[phase] for phase in PHASES}
    spent = ", ".join(f"{phase} {sum(by.values()) / counts[phase]:.3g} J" for phase, by in energy["joules"].items())
    return f"{spent} a token beyond idle ({', '.join(energy['idle_watts'])})"


def readable_comparison(row: dict[str, Any]) -> dict[str, str | None]:
    """Both, and how many times as fast ours is, each with its interval."""
    theirs, shares = row["llama.cpp"], row["roofline"]
    bandwidths = shares["bandwidth_bytes_per_s"]
    lines = {
        "model": row["model"],
        "kernels": kernels_line(row),
        "llama.cpp": f"llama-cpp-python {theirs['version']}, {row['threads']} thread(s)",
        "KV cache": f"{row['kv_bits']:.3g} bits here, {theirs['kv_format']} there",
        "bandwidth": f"{readable_bytes(min(bandwidths))}/s to {readable_bytes(max(bandwidths))}/s over the rounds",
        "measured": measured_line(row["ours"]),
    }
    for phase in PHASES:
        test, found = f"{phase}{row[phase]}@{row['depth']}", row["ratio"][phase]
        for side, name in (("ours", "qbench"), ("theirs", "llama.cpp")):
            lines[f"{test} {name}"] = throughput({**row[side], "roofline": shares[side]}, phase)
        lines[f"{test} ratio"] = found and versus_ratio(found)
    return lines


def versus_ratio(found: dict[str, Any]) -> str:
    """ "1.31 (95 % 1.28 to 1.34)", of the rounds' range where they are too few for an interval"""
    low, high = found["interval"] or (found["min"], found["max"])
    return f"{found['median']:.2f} ({'95 % ' if found['interval'] else ''}{low:.2f} to {high:.2f})"
