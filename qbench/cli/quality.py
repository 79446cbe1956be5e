"""`qbench eval MODEL` without tasks: its options as one object, and the runs that they ask for."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qbench.cli.option_group import with_options
from qbench.cli.output import print_json, print_warning, readable_bytes
from qbench.cli.progress import progress_bar, tell_long_run
from qbench.cli.quality_lines import few_tokens_warning, print_kept, print_quality
from qbench.cli.types import count_option
from qbench.quality.protocols.documents import HOW
from qbench.run.options import RunOptions
from qbench.run.work import QualityWork
from quant.present import present

if TYPE_CHECKING:
    from qbench.quality.peak_memory import PeakMemory

KEPT = ("exact", "top-k")
PROTOCOLS = (
    "gptq-2048, windows-N, llama.cpp-512, lm-eval-word, lm-eval-byte, stride-N or all; may be given several times"
)


@dataclass(frozen=True, slots=True)
class QualityOptions:
    """Values of the options; None or empty for those that were not given."""

    reference: str | None
    protocols: tuple[str, ...]
    text: str | None
    documents: str | None
    windows: int | None
    logits: Path | None
    save_logits: Path | None
    kld_reference: str | None

    @property
    def asked(self) -> bool:
        return any(asdict(self).values())

    @property
    def settings(self) -> QualityWork:
        return QualityWork(
            self.text, self.windows, self.protocols, self.documents, reference=self.reference, logits=self.logits
        )


_path = click.Path(path_type=Path)
OPTIONS = (
    click.option("--reference", help="The unquantized model, from whose logits KLD is measured."),
    click.option("--protocol", "protocols", multiple=True, help=f"{PROTOCOLS}.  [default: gptq-2048]"),
    click.option("--text", type=click.Path(), help="UTF-8 text  [default: a reference model's held-out text]"),
    click.option(
        "--documents",
        type=click.Choice(HOW),
        help="Division of the text into documents for lm-eval-* protocols  [default: detected]",
    ),
    count_option(
        "--windows",
        help="Number of windows (lm-eval-*: documents) to score, spread over the text  [default: all]",
    ),
    click.option("--logits", type=_path, help="Logits that --save-logits wrote, instead of --reference."),
    click.option(
        "--save-logits", type=_path, help="Write the logits of MODEL to this file, as the reference of later runs."
    ),
    click.option(
        "--kld-reference", type=click.Choice(KEPT), help="Form of the saved logits  [default: exact if that is < 2 GiB]"
    ),
)


def quality_options(command: Callable) -> Callable:
    """Adds the options; the command gets them as `quality`, a QualityOptions."""

    return with_options("quality", QualityOptions, OPTIONS, command)


def check_quality(quality: QualityOptions, as_another: str | bool | None) -> None:
    """as_another   the option that changes MODEL, if one was given"""
    if quality.kld_reference and quality.save_logits is None:
        raise click.UsageError("--kld-reference says how --save-logits keeps logits; give both")
    if quality.save_logits is None:
        return
    if as_another or quality.reference or quality.logits:
        raise click.UsageError(
            "--save-logits keeps MODEL as it is: no --recipe, --kv, --compute, --device, --reference or --logits "
            "with it"
        )
    if len(quality.protocols) > 1 or "all" in quality.protocols:
        raise click.UsageError("--save-logits keeps one protocol; give one --protocol")


def eval_quality(model: str, quality: QualityOptions, options: RunOptions, as_json: bool) -> None:
    from qbench.quality.evaluate import evaluate

    with progress_bar(f"evaluate {model}") as update:
        progress = tell_long_run(update, "windows", "--windows N takes fewer")
        result = evaluate(model, quality.settings, options, notice=tell_peak, progress=progress)
    print_warning(few_tokens_warning(result))
    print_json(result.to_json()) if as_json else print_quality(result)


def tell_peak(peak: "PeakMemory") -> None:
    """One line on stderr before the weights are read."""
    total, weights, passed, piece = map(
        readable_bytes, (peak.total_bytes, peak.weights_bytes, peak.pass_bytes, peak.piece_bytes)
    )
    click.echo(
        f"peak memory about {total}: weights {weights}, forward pass {passed}, logits of a piece {piece}", err=True
    )


def save_logits(model: str, quality: QualityOptions, options: RunOptions, as_json: bool) -> None:
    from qbench.quality.save_reference import save_reference

    path, mode = present(quality.save_logits), quality.kld_reference
    with progress_bar(f"logits of {model}") as update:
        result = save_reference(model, path, quality.settings, options, mode=mode, progress=update)
    print_json(result.to_json()) if as_json else print_kept(result)
