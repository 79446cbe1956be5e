"""`qbench bench MODEL`: tokens a second, share of the roofline, memory."""

from dataclasses import asdict

import click

from qbench.cli.int_list import IntList
from qbench.cli.output import (
    json_option,
    kv_option,
    print_json,
    print_pairs,
    print_warning,
    readable_bytes,
    threads_option,
)
from qbench.cli.progress import progress_bar


@click.command("bench")
@click.argument("model")
@click.option("--recipe", help="Measure MODEL as this recipe would make it, quantized while it loads.")
@click.option("-p", "--pp", type=click.IntRange(min=0), default=512, show_default=True, help="Prompt tokens.")
@click.option("-n", "--tg", type=click.IntRange(min=0), default=128, show_default=True, help="Tokens to decode.")
@click.option("-d", "--depth", "depths", type=IntList(0), default="0", show_default=True, help="Tokens held before.")
@click.option("-r", "--repetitions", type=click.IntRange(min=1), default=5, show_default=True)
@click.option(
    "--vs",
    type=click.Choice(["llama.cpp"]),
    help="Run the same GGUF file through this in turn, keys and values in 16 bits  [kv-f16].",
)
@click.option("--cpu-time", is_flag=True, help="With --vs on a busy machine: count what each side gets, one thread.")
@click.option("--keep", type=click.Path(), help="Append what --vs measured as records to this file or folder.")
@kv_option
@threads_option
@json_option
def command(model, recipe, pp, tg, depths, repetitions, vs, cpu_time, keep, kv, threads, as_json) -> None:
    """Speed and memory of MODEL: prefill (pp) and decode (tg) as llama-bench defines them.

    Several depths, as in 0,4096, are measured one after the other.
    """
    from qbench.harness.speed_case import SpeedCase

    cases = [SpeedCase(pp, tg, depth, repetitions) for depth in depths]
    how = {"kv": kv, "threads": threads}
    if vs is None and (keep is not None or cpu_time):
        raise click.UsageError("--keep and --cpu-time are for what --vs measures")
    if vs is None:
        print_bench(model, recipe, cases, how, as_json)
    elif recipe is None:
        print_comparison(model, cases, how | {"clock": "cpu" if cpu_time else "wall"}, keep, as_json)
    else:
        raise click.UsageError(f"--vs {vs} takes a file as it is: write it with `qbench quantize --recipe {recipe}`")


def print_bench(model: str, recipe: str | None, cases: list, how: dict, as_json: bool) -> None:
    """One object, or one block of lines, for each case."""
    from qbench.harness.bench import bench

    for case in cases:
        with progress_bar(f"bench {model}") as update:
            result = bench(model, recipe=recipe, **asdict(case), **how, progress=update)
        if as_json:
            print_json(result)
        else:
            print_pairs(readable(result))


def print_comparison(model: str, cases: list, how: dict, keep: str | None, as_json: bool) -> None:
    from qbench.harness.busy import busy_share, busy_warning
    from qbench.harness.kept_row import VERSUS_KEYS, keep_row
    from qbench.versus.compare import compare

    busy = busy_share()
    with progress_bar(f"bench {model} --vs llama.cpp") as update:
        rows = [row | {"busy_before": busy} for row in compare(model, cases, **how, progress=update)]
    print_warning(busy_warning(busy))
    for row in rows:
        if keep is not None:
            keep_row(keep, row, {"kind": "versus", "peer": "llama.cpp"}, VERSUS_KEYS)
        if as_json:
            print_json(row)
        else:
            print_pairs(readable_comparison(row))


def readable_comparison(row: dict) -> dict[str, str | None]:
    """Both, and how many times as fast ours is: median, and the range of the repetitions."""
    theirs, shares = row["llama.cpp"], row["roofline"]
    before, after = (readable_bytes(value) for value in shares["bandwidth_bytes_per_s"])
    lines = {
        "model": row["model"],
        "kernels": kernels_line(row),
        "llama.cpp": f"llama-cpp-python {theirs['version']}, {row['threads']} thread(s)",
        "keys and values": f"{row['kv_bits']:.3g} bits here, {theirs['kv']} there",
        "bandwidth": f"{before}/s before, {after}/s after",
    }
    for phase in ("pp", "tg"):
        test, found = f"{phase}{row[phase]}@{row['depth']}", row["ratio"][phase]
        for side, name in (("ours", "qbench"), ("theirs", "llama.cpp")):
            lines[f"{test} {name}"] = throughput({**row[side], "roofline": shares[side]}, phase)
        lines[f"{test} ratio"] = found and f"{found['median']:.2f} ({found['min']:.2f} to {found['max']:.2f})"
    return lines


def kernels_line(result: dict) -> str:
    impls = ", ".join(f"{name} ({count} linears)" for name, count in result["impls"].items())
    return f"{impls}; isa {result['isa']}, {result['threads']} thread(s)"


def readable(result: dict) -> dict[str, str | None]:
    """The lines for people: median with the range of the repetitions, share of the roofline, memory by part."""
    peak, baseline = readable_bytes(result["peak_rss_bytes"]), readable_bytes(result["baseline_rss_bytes"])
    predicted = {part: readable_bytes(value) for part, value in result["predicted_bytes"].items()}
    return {
        "model": result["model"],
        "kernels": kernels_line(result),
        f"pp{result['pp']}": throughput(result, "pp"),
        f"tg{result['tg']}": throughput(result, "tg"),
        "bits_per_weight": f"{result['bits_per_weight']:.4f}",
        "peak_rss": f"{peak} ({baseline} before the model)",
        "predicted": ", ".join(f"{part} {value}" for part, value in predicted.items()),
        "kv_bytes_per_token": readable_bytes(result["kv_bytes_per_token"]),
    }


def throughput(result: dict, phase: str) -> str | None:
    """ "123.4 tok/s (121.0 to 125.9, 64 % of the roofline)", or None where the phase was not measured."""
    median = result[f"{phase}_tok_s"]
    if median is None:
        return None
    samples = result["samples"][f"{phase}_tok_s"]
    share = result["roofline"][phase]
    bound = f", {100 * share:.0f} % of the roofline" if share is not None else ""
    return f"{median:.2f} tok/s ({min(samples):.2f} to {max(samples):.2f}{bound})"
