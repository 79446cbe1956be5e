"""`qbench eval MODEL`: perplexity, and with a reference the divergence from it."""

import click

from qbench.cli.output import json_option, kv_option, print_json, print_pairs, threads_option
from qbench.cli.progress import progress_bar
from qbench.cli.tasks import check_tasks, eval_tasks, task_options


@click.command("eval")
@click.argument("model")
@click.option("--recipe", help="Measure MODEL as this recipe would make it, quantized while it loads.")
@click.option("--reference", help="The unquantized model; its logits are what KLD is measured from.")
@click.option("--text", type=click.Path(), help="UTF-8 text  [default: a reference model's held-out text]")
@click.option("--windows", type=click.IntRange(min=1), help="How many, spread over the text  [default: all]")
@task_options
@kv_option
@threads_option
@json_option
def command(
    model, recipe, reference, text, windows, tasks, limit, num_fewshot, include_path, kv, threads, as_json
) -> None:
    """Quality of MODEL: perplexity under a named protocol, KLD and same-top share against a reference."""
    from qbench.harness.evaluate import evaluate

    check_tasks(tasks, reference or text or windows, limit or num_fewshot or include_path)
    if tasks is not None:
        return eval_tasks(model, tasks, limit, num_fewshot, include_path, recipe, kv, threads, as_json)
    with progress_bar(f"evaluate {model}") as update:
        result = evaluate(
            model,
            recipe=recipe,
            reference=reference,
            text=text,
            max_windows=windows,
            kv=kv,
            threads=threads,
            progress=update,
        )
    if as_json:
        print_json(result)
    else:
        print_pairs(readable(result))


def readable(result: dict) -> dict[str, str | None]:
    """The lines for people: each figure with its interval, names as in the JSON."""
    perplexity, interval = result["perplexity"], result["perplexity_interval"]
    spread = f"95 % {interval[0]:.4f} to {interval[1]:.4f}, " if interval else ""
    lines = {
        "model": result["model"],
        "protocol": f"{result['protocol']['name']} ({result['protocol']['hash'][:12]})",
        "perplexity": None if perplexity is None else f"{perplexity:.4f}  ({spread}{result['num_tokens']:,} tokens)",
        "bits_per_weight": f"{result['bits_per_weight']:.4f}",
    }
    kld = result.get("kld")
    if kld is not None:
        lines |= {f"kld {name}": f"{value:.3e} nats" for name, value in kld.items()}
        lines["same_top"] = f"{100 * result['same_top']:.3f} %"
    return lines
