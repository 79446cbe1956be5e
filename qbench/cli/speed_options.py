"""The options of the commands that measure speed: the work, and how long it is repeated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click

from qbench.cli.option_group import with_options
from qbench.cli.output import budget_option
from qbench.cli.types import IntList, Percentage, count_option
from qbench.run.choices import MAX_THREADS
from qbench.run.work import SpeedWork, fitting_sizes

LEAST_REPETITIONS = 6  # the smallest number that gives an interval of a median
PRECISION = 0.02  # narrow enough to show a regression of 5 %
STEPS = "Number of tokens to decode  [default: 128, or fewer in a short context]"
# Axes of a model that is timed with one cache; the layout and the policy are those of each command.
ATTENDS = ("kv_format", "prefill", "prefill_chunk", "attention", "kv_ram", "kv_disk")


@dataclass(frozen=True, slots=True)
class SpeedOptions:
    """Values of the options; None for those that were not given."""

    pp: int | None
    tg: int | None
    depths: tuple[int, ...]
    batches: tuple[int, ...]
    repetitions: int | None
    precision: float | None
    budget: float
    threads: tuple[int, ...] | None

    @property
    def counts(self) -> tuple[int | None, ...]:
        """Numbers of threads, which are measured one after the other."""
        return self.threads or (None,)

    def cases(self, models: Sequence[str]) -> list[SpeedWork]:
        """Every batch at every depth, with default sizes that fit the shortest context of the models."""
        pp, tg = self.pp, self.tg
        if pp is None or tg is None:
            pp, tg = fitting_sizes(pp, tg, max(self.depths), shortest_context(models))
        how_long = effort(self.repetitions, self.precision, self.budget)
        return [SpeedWork(pp, tg, depth, batch=batch, **how_long) for batch in self.batches for depth in self.depths]


OPTIONS = (
    count_option("-p", "--pp", least=0, help="Number of prompt tokens  [default: 512, or fewer in a short context]"),
    count_option("-n", "--tg", least=0, help=STEPS),
    click.option(
        "-d",
        "--depth",
        "depths",
        type=IntList(0),
        default="0",
        show_default=True,
        help="Number of tokens in the cache before each phase, or several numbers.",
    ),
    click.option(
        "-b",
        "--batch",
        "batches",
        type=IntList(1),
        default="1",
        show_default=True,
        help="Number of sequences at once, or several numbers.",
    ),
    count_option("-r", "--repetitions", help="Number of timed repetitions; the minimum if --precision is given."),
    click.option(
        "--precision",
        type=Percentage(),
        help="Repeat until every 95 % interval is within this share of its value  [default: 2%, without -r]",
    ),
    budget_option(30),
    click.option(
        "--threads", type=IntList(1, MAX_THREADS), help="Number of threads, or several numbers  [default: all cores]"
    ),
)


def speed_options(command: Callable) -> Callable:
    """Adds the options; the command gets them as `work`, a SpeedOptions."""
    return with_options("work", SpeedOptions, OPTIONS, command)


def shortest_context(models: Sequence[str]) -> int:
    from qbench.sources import open_source
    from quant.models import ModelConfig

    return min(ModelConfig.of(open_source(model)).max_positions for model in models)


def effort(repetitions: int | None, precision: float | None, budget: float) -> dict:
    """The fields of SpeedWork. Repetitions without a precision are exactly as many as were given."""
    if precision is None and repetitions is None:
        precision = PRECISION
    return {
        "repetitions": repetitions or LEAST_REPETITIONS,
        "precision": precision,
        "budget_s": None if precision is None else budget,
    }
