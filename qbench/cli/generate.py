"""`qbench generate MODEL PROMPT`: text from a model, streamed as it comes."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import click

from qbench.cli.help import Command
from qbench.cli.output import echo, json_option, print_json
from qbench.cli.progress import progress_bar
from qbench.cli.rank_options import join
from qbench.cli.run_options import run_options
from qbench.cli.types import FiniteRange, count_option
from qbench.run.axes import KV_CACHE, RANKS
from qbench.run.options import RunOptions
from quant.errors import InputError


def in_utf8(_context: click.Context, _option: click.Parameter, text: Any) -> Any:
    """A text, or several, of bytes that the locale lacks and that are UTF-8; other ones stay as they are."""
    if isinstance(text, tuple):
        return tuple(in_utf8(_context, _option, each) for each in text)
    if text is None:
        return None
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError:
        return text


@click.command(
    "generate",
    cls=Command,
    sections={
        "Text": ("prompt", "max_new_tokens", "stop", "logprobs"),
        "Sampling": ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed"),
    },
    examples=(
        "qbench generate ref:llama 'The sun' -n 32",
        "qbench generate model.gguf 'The sun' --temperature 0.8 --seed 1",
    ),
)
@click.argument("model", is_eager=True)
@click.argument("prompt", required=False, callback=in_utf8)
@click.option("--prompt", "prompt_option", callback=in_utf8, help="Another way to give PROMPT.")
@count_option(
    "-n", "--max-new-tokens", help="Largest number of tokens to generate  [default: 128, or fewer in a short context]"
)
@click.option("--temperature", type=FiniteRange(min=0), default=0.0, show_default=True,
              help="Temperature of sampling; 0 always takes the likeliest token.")  # fmt: skip
@click.option("--top-p", type=FiniteRange(min=0, max=1, min_open=True), default=1.0, show_default=True,
              help="Sample among the likeliest tokens that have this share of the probability.")  # fmt: skip
@count_option("--top-k", least=0, default=0, help="Sample among this number of likeliest tokens; 0 keeps all.")
@click.option("--min-p", type=FiniteRange(min=0, max=1), default=0.0, show_default=True,
              help="Drop tokens below this share of the likeliest token's probability; 0 keeps all.")  # fmt: skip
@click.option("--repetition-penalty", type=FiniteRange(min=0, min_open=True), default=1.0, show_default=True,
              help="Factor against tokens that the text already has; 1 is off.")  # fmt: skip
@click.option("--stop", multiple=True, callback=in_utf8, help="Stop before this text; may be given several times.")
@count_option("--logprobs", least=0, help="With --json: log-probabilities of each token and of this many alternatives.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of sampling.")
@json_option
@run_options("recipe", KV_CACHE, "threads", "memory", "expert_placement", RANKS)
def command(
    model, prompt, prompt_option, max_new_tokens, temperature, top_p, top_k, min_p, repetition_penalty, stop, logprobs,
    seed, as_json, options: RunOptions,
) -> None:  # fmt: skip
    """Continue PROMPT; tokens are printed as they come. Without PROMPT the model starts from its BOS token."""
    from qbench.calibration.open_subject import open_subject
    from qbench.runtime import Sampling

    prompt = single_prompt(prompt, prompt_option)
    sampling = Sampling(temperature, top_p, top_k, min_p, repetition_penalty, seed)
    subject = open_subject(model, join(model, options))
    on_text = print_nothing if as_json else print_piece
    result = continue_text(subject, prompt, sampling, max_new_tokens, stop, logprobs, on_text)
    if as_json:
        print_json(result)
        return
    pace = f", {result['tpot_ms']:.2f} ms per token after it" if result["tpot_ms"] is not None else ""
    click.echo(f"\n{result['ttft_ms']:.1f} ms to the first token{pace}; ended by {result['stop_reason']}", err=True)


def single_prompt(argument: str | None, option: str | None) -> str:
    """The prompt that was given, or an empty one. raises UsageError for both"""
    if argument is not None and option is not None:
        raise click.UsageError("PROMPT and --prompt are the same; give one of them")
    return next((text for text in (argument, option) if text is not None), "")


def print_piece(piece: str) -> None:
    echo(piece, nl=False) if sys.stdout.isatty() else click.echo(piece, nl=False)  # a file gets the exact text


def print_nothing(piece: str) -> None:
    pass


def continue_text(
    subject,
    prompt: str,
    sampling,
    max_new_tokens: int | None,
    stop: Sequence[str],
    logprobs: int | None,
    on_text: Callable[[str], None],
) -> dict:
    """The generated text and its speed; `on_text` gets each piece of text as soon as it is certain."""
    from qbench.runtime import StoppingStream, Tokenizer, generate, open_text

    if subject.source.tokenizer is None:
        raise InputError(f"{subject.spec} has no tokenizer, so it has no text to generate; choose a model with one")
    tokenizer = Tokenizer(subject.source.tokenizer)
    with progress_bar(f"load {subject.spec}"):
        opening = open_text(subject.source, tokenizer, prompt, subject.options, max_new_tokens)
    model, tokens = opening.model, opening.tokens
    stream = StoppingStream(tokenizer.stream(opening.shown), stop)
    pieces: list[str] = []

    def tell(piece: str) -> bool:
        pieces.append(piece)
        on_text(piece)
        return stream.stopped

    done = generate(model, tokens, sampling, max_new_tokens, lambda token: tell(stream.push(token)), logprobs=logprobs)
    tell(stream.flush())
    return {
        **subject.facts(model.impls, tally=model.prefill_tally).to_json(),
        "prompt": prompt,
        "text": "".join(pieces),
        "tokens": list(done.tokens),
        "stop_reason": done.stop_reason,
        "ttft_ms": done.ttft_ms,
        "tpot_ms": done.tpot_ms,
        "logprobs": None if logprobs is None else [asdict(each) for each in done.log_probabilities],
    }
