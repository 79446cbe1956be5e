"""`qbench breakeven MODEL`: from which size on a faster way pays on this machine, and "off" below it."""

from typing import TYPE_CHECKING, Any

import click

from qbench.cli.cache_options import split_list
from qbench.cli.help import Command
from qbench.cli.keep_path import KeepPath
from qbench.cli.memory_size import MEMORY_SIZE
from qbench.cli.output import aligned, cpu_time_option, json_option, print_json, print_warning
from qbench.cli.progress import progress_bar
from qbench.cli.run_options import axis_option
from qbench.cli.types import IntList, Percentage, count_option
from qbench.measure.host.conditions import busy_share, busy_warning, check_clock
from qbench.measure.host.machine import available_cores
from qbench.measure.records.kept_row import keep_row
from qbench.run.options import RunOptions

if TYPE_CHECKING:
    from qbench.breakeven import Answer, Point

MEBI, OFFLOAD = 1 << 20, "offload"
MASS = 0.95  # papers compare patterns there
SHARES = ("blocks", "mass")
CASE_KEYS = ("model", "recipe", "kv_format", "question", "alternative", "layers", "mass", "rounds", "threads", "clock")


def list_questions(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from qbench.breakeven import questions

    for each in questions():
        click.echo(f"{each.name}\n    {each.asks}")
    ctx.exit()


@click.command(
    "breakeven",
    cls=Command,
    sections={"Question": ("what", "list", "only", "at", "layers", "rounds")},
    examples=("qbench breakeven --list", "qbench breakeven ref:llama --what prefill"),
)
@click.argument("model", required=False)
@click.option("--what", help="Question to answer; --list shows all  [default: prefill]")
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=list_questions,
    help="List the questions and exit.",
)
@click.option("--only", help="Alternatives, e.g. flexprefill,star:25%  [default: all that the question knows]")
@click.option("--at", "sizes", type=IntList(1), default=(), help="Sizes to measure  [default: the question's own]")
@click.option("--memory", type=MEMORY_SIZE, help="Memory limit to measure: short for --what offload --at its MiB.")
@click.option(
    "--mass",
    type=Percentage(),
    default=MASS,
    show_default=True,
    help="Attention mass that a prefill pattern must cover.",
)
@click.option("--recipe", help="Quantize MODEL by this recipe while it loads.")
@count_option("--layers", help="Measure the first layers alone  [default: all]")
@count_option("--rounds", default=8, help="Turns of each side.")
@cpu_time_option
@axis_option("kv_format")
@axis_option("threads")
@click.option("--keep", type=KeepPath(), help="Append each alternative as a record to this file or folder.")
@json_option
def command(
    model, what, only, sizes, memory, mass, recipe, layers, rounds, cpu_time, kv, threads, keep, as_json
) -> None:
    """Sizes from which on a choice is faster than the default, from interleaved measurements with intervals.

    An alternative is "off" at a size unless its whole interval is above 1.
    """
    if model is None:
        raise click.UsageError("MODEL is missing; only --list needs none")
    from qbench.breakeven import Settings, get_question

    asked, clock = get_question(question_name(what, memory)), "cpu" if cpu_time else "wall"
    check_clock(clock, threads or available_cores())
    alternatives = tuple(split_list(only)) if only else ()
    options = RunOptions(recipe, kv, threads=threads)
    sizes = (*sizes, *(() if memory is None else (max(1, memory // MEBI),)))
    settings = Settings(options, sizes, alternatives, rounds, clock, mass, layers)
    busy = busy_share()
    with progress_bar(f"breakeven {model}") as update:
        answers = list(asked.answers(model, settings, update))
    print_warning(busy_warning(busy))
    about: dict[str, Any] = {"model": model, "question": asked.name, "axis": asked.axis, "layers": layers}
    about |= {"mass": mass, "clock": clock, "rounds": rounds, "busy_before": busy}
    if keep is not None:
        own = {"recipe": recipe, "kv_format": kv, "threads": threads or available_cores()}
        for answer in answers:
            keep_row(keep, about | own | answer.to_json(), {"kind": "breakeven"}, CASE_KEYS)
    if as_json:
        for answer in answers:
            print_json(about | answer.to_json())
    else:
        print_answers(asked.asks, asked.axis, answers)


def question_name(what: str | None, memory: int | None) -> str:
    """raises UsageError for a memory limit with another question"""
    if memory is None:
        return what or "prefill"
    if what not in (None, OFFLOAD):
        raise click.UsageError(f"--memory is a limit of --what {OFFLOAD}; --at has the sizes of --what {what}")
    return OFFLOAD


def print_answers(asks: str, axis: str, answers: list["Answer"]) -> None:
    """A row per alternative and size, then a conclusion per alternative."""
    points = [(answer, point) for answer in answers for point in answer.points]
    figures = list(dict.fromkeys(name for _, point in points for name in point.figures or ()))
    rows = [cells(answer, point, figures) for answer, point in points]
    click.echo(f"{asks}\n")
    click.echo("\n".join(aligned(("alternative", "size", "setting", *figures, "speed", "verdict"), rows)) + "\n")
    for answer in answers:
        click.echo(conclusion(answer, axis))


def cells(answer: "Answer", point: "Point", figures: list[str]) -> list[str]:
    own = point.figures or {}
    texts = [f"{100 * own[name]:.1f} %" if name in SHARES else f"{own[name]:.3g}" for name in figures]
    if point.ratio is None:
        return [answer.alternative, f"{point.size}", "no setting has the mass", *texts, "", point.verdict]
    interval = "" if point.low is None else f" [{point.low:.2f}, {point.high:.2f}]"
    return [
        answer.alternative,
        f"{point.size}",
        point.choice or "",
        *texts,
        f"{point.ratio:.2f}{interval}",
        point.verdict,
    ]


def conclusion(answer: "Answer", axis: str) -> str:
    if answer.conclusion is not None:
        return answer.conclusion
    if answer.pays_from is None:
        return f"{answer.alternative}: off up to {answer.below} {axis}"
    if answer.below is None:
        return f"{answer.alternative}: pays from {answer.pays_from} {axis} on, the smallest size measured"
    return f"{answer.alternative}: pays from {answer.pays_from} {axis} on, off at {answer.below}"
