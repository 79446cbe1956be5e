"""`qbench generate MODEL --prompt TEXT`: text from a model, streamed as it comes."""

from collections.abc import Callable

import click

from qbench.cli.finite_range import FiniteRange
from qbench.cli.output import json_option, kv_option, print_json, threads_option
from qbench.cli.progress import progress_bar


@click.command("generate")
@click.argument("model")
@click.option("--prompt", default="", help="Text to continue; without one the model starts from its BOS token.")
@click.option("--recipe", help="Run MODEL as this recipe would make it, quantized while it loads.")
@click.option("-n", "--max-new-tokens", type=click.IntRange(min=1), default=128, show_default=True)
@click.option("--temperature", type=FiniteRange(min=0), default=0.0, show_default=True, help="0 is greedy.")
@click.option("--top-p", type=FiniteRange(min=0, max=1, min_open=True), default=1.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@kv_option
@threads_option
@json_option
def command(model, prompt, recipe, max_new_tokens, temperature, top_p, seed, kv, threads, as_json) -> None:
    """Continue a prompt, one token at a time on stdout."""
    from qbench.harness.subject import open_subject
    from qbench.runtime import Sampling

    subject = open_subject(model, recipe, threads, kv=kv)
    sampling = Sampling(temperature=temperature, top_p=top_p, seed=seed)
    result = continue_text(subject, prompt, sampling, max_new_tokens, print_nothing if as_json else print_piece)
    if as_json:
        print_json(result)
        return
    pace = f", {result['tpot_ms']:.2f} ms a token after it" if result["tpot_ms"] is not None else ""
    click.echo(f"\n{result['ttft_ms']:.1f} ms to the first token{pace}; ended by {result['stop_reason']}", err=True)


def print_piece(piece: str) -> None:
    click.echo(piece, nl=False)


def print_nothing(piece: str) -> None:
    pass


def continue_text(subject, prompt: str, sampling, max_new_tokens: int, on_text: Callable[[str], None]) -> dict:
    """What was generated and how fast; `on_text` gets each piece of text as soon as it is certain."""
    from qbench.runtime import Tokenizer, generate, load_model
    from quant.errors import InputError

    if subject.source.tokenizer is None:
        raise InputError(f"{subject.spec} has no tokenizer, so it has no text to generate; choose a model with one")
    try:
        prompt.encode()
    except UnicodeEncodeError:  # bytes of the command line that are no text arrive as lone surrogates
        raise InputError("the prompt is not UTF-8; convert it") from None
    tokenizer = Tokenizer(subject.source.tokenizer)
    tokens = tokenizer.encode(prompt, add_bos=None if prompt else True)
    with progress_bar(f"load {subject.spec}"):
        model = load_model(subject.source, threads=subject.threads)
    stream = tokenizer.stream(tokens)
    done = generate(model, tokens, sampling, max_new_tokens, lambda token: on_text(stream.push(token)))
    on_text(stream.flush())
    return {
        **subject.facts(model.impls),
        "prompt": prompt,
        "text": tokenizer.decode(done.tokens),
        "tokens": list(done.tokens),
        "stop_reason": done.stop_reason,
        "ttft_ms": done.ttft_ms,
        "tpot_ms": done.tpot_ms,
    }
