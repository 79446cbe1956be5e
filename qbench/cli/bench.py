"""`qbench bench MODEL`: tokens a second, share of the roofline, memory."""

import click

from qbench.cli.output import json_option, kv_option, print_json, print_pairs, readable_bytes, threads_option
from qbench.cli.progress import progress_bar


@click.command("bench")
@click.argument("model")
@click.option("--recipe", help="Measure MODEL as this recipe would make it, quantized while it loads.")
@click.option("-p", "--pp", type=click.IntRange(min=0), default=512, show_default=True, help="Prompt tokens.")
@click.option("-n", "--tg", type=click.IntRange(min=0), default=128, show_default=True, help="Tokens to decode.")
@click.option("-d", "--depth", type=click.IntRange(min=0), default=0, show_default=True, help="Tokens held before.")
@click.option("-r", "--repetitions", type=click.IntRange(min=1), default=5, show_default=True)
@kv_option
@threads_option
@json_option
def command(model, recipe, pp, tg, depth, repetitions, kv, threads, as_json) -> None:
    """Speed and memory of MODEL: prefill (pp) and decode (tg) as llama-bench defines them."""
    from qbench.harness.bench import bench

    with progress_bar(f"bench {model}") as update:
        result = bench(
            model,
            recipe=recipe,
            pp=pp,
            tg=tg,
            depth=depth,
            repetitions=repetitions,
            kv=kv,
            threads=threads,
            progress=update,
        )
    if as_json:
        print_json(result)
    else:
        print_pairs(readable(result))


def readable(result: dict) -> dict[str, str | None]:
    """The lines for people: median with the range of the repetitions, share of the roofline, memory by part."""
    impls = ", ".join(f"{name} ({count} linears)" for name, count in result["impls"].items())
    peak, baseline = readable_bytes(result["peak_rss_bytes"]), readable_bytes(result["baseline_rss_bytes"])
    predicted = {part: readable_bytes(value) for part, value in result["predicted_bytes"].items()}
    return {
        "model": result["model"],
        "kernels": f"{impls}; isa {result['isa']}, {result['threads']} thread(s)",
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
