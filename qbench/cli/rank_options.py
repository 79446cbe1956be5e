"""--tp, --pp, --ep, --sp and --cut: one model on several ranks, which torchrun starts."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import click

from qbench.cli.types import FiniteRange, count_option
from qbench.measure.host.commit import code_version
from qbench.measure.host.machine import own_cores
from qbench.options.rank_layout import ALL_TO_ALL, AUTO, CUTS, DISPATCHES, LINKS, RankLayout, check_world, find_world
from qbench.options.run_options import RunOptions
from quant.errors import InputError
from quant.present import present

OPTIONS = ("--tp", "--pp", "--stages", "--ep", "--sp", "--cluster", "--instances", "--divisions")
RANK_FIELDS = ("tp", "stages", "cut", "ep", "sp", "micro_batches", "dispatch")
TIMEOUT = "--rank-timeout"
TIMEOUT_S = 120.0
LINK = "--link"
RAY = "--ray"
RESTARTS = "--restarts"
RANKS_UNDER_RAY = "Start the ranks in a Ray cluster instead of by torchrun: HOST:PORT of its head, auto, or local."
RANK_0_FIRST_S = 5.0  # Python takes about a second to reach the check of the options, and more on a busy machine


def rank_options(command: Callable) -> Callable:
    """--tp, --pp, --ep, --sp and --cut."""
    return _options(command, RANKS_UNDER_RAY, "--pp", "--stages", "stages")


def sweep_rank_options(command: Callable) -> Callable:
    """The same of a command that also runs on the nodes of a Ray cluster, with one rank on each."""
    text = (
        "Run on the nodes of a Ray cluster: HOST:PORT of its head, or auto; with --tp, --pp, --ep or --sp also local."
    )
    return _options(command, text, "--pp", "--stages", "stages")


def bench_rank_options(command: Callable) -> Callable:
    """--tp, --stages, --ep, --sp and --cut of a command whose --pp is the length of a prompt."""
    return _options(command, RANKS_UNDER_RAY, "--stages")


def _options(command: Callable, under_ray: str, *stages: str) -> Callable:
    text = "Cut of the output and down projections. sum: fewer messages; gather: the bits of one rank  [default: sum]"
    cut = click.option("--cut", type=click.Choice(CUTS), help=text)
    pp = count_option(*stages, help="Number of stages, each with some of the layers; torchrun starts the ranks")
    tp = count_option("--tp", help="Number of lanes, each with a part of every layer; torchrun starts the ranks")
    ep = count_option("--ep", help="Number of lanes, each with some routed experts; torchrun starts the ranks")
    sp = count_option("--sp", help="Number of lanes, each with the KV cache of some tokens; torchrun starts the ranks")
    parts = count_option("--micro-batches", help="Number of parts of each forward pass that stages compute in turns")
    text = (
        "Way of tokens to experts of --ep. sum: all lanes have all tokens; all-to-all: lanes send them  [default: sum]"
    )
    dispatch = click.option("--dispatch", type=click.Choice(DISPATCHES), help=text)
    text = "Longest wait for another rank, in seconds; the run then ends with its name"
    wait = click.option(
        TIMEOUT,
        type=FiniteRange(min=0, min_open=True),
        default=TIMEOUT_S,
        show_default=True,
        expose_value=False,
        callback=_keep,
        help=text,
    )
    ray = click.option(RAY, metavar="ADDRESS", expose_value=False, callback=_keep, help=under_ray)
    restarts = click.option(
        RESTARTS,
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        expose_value=False,
        callback=_keep,
        help="With --ray: number of times that all ranks start again after one of them was lost.",
    )
    link = click.option(
        LINK,
        type=click.Choice(LINKS),
        default=AUTO,
        show_default=True,
        expose_value=False,
        callback=_keep,
        help="How values travel between ranks. shm: memory that they share; gloo: sockets; auto: shm on one host",
    )
    return tp(pp(cut(ep(dispatch(sp(parts(ray(restarts(link(wait(command)))))))))))


def _keep(ctx: click.Context, option: click.Parameter, value: float | str | None) -> None:
    ctx.meta[option.opts[0]] = value


def join(model: str, options: RunOptions, layout: RankLayout | None = None) -> RunOptions:
    """Join the ranks, if the options ask for several, and check that all have the same code, model and command line.

    layout   None: the one of the options
    returns  the options, with this rank's share of its host's cores if they name no number of threads
    raises   InputError on every rank for a difference; an error of one rank reaches rank 0
    """
    layout = options.layout if layout is None else layout
    if not join_for(layout, options.threads, partial(_model_file, model)):
        return options
    return _with_share(options)


def join_for(layout: RankLayout, threads: int | None, about: Callable[[], dict[str, str | None]]) -> bool:
    """Join the ranks of the layout, or start them under Ray and exit as they do. False: it has one rank

    about    facts that all ranks have in common next to code and command line; called once they have joined
    raises   InputError as `join`
    """
    asked = click.get_current_context().meta
    if asked[RESTARTS] and asked[RAY] is None:
        raise InputError(f"{RESTARTS} is for ranks of {RAY}; torchrun has --max-restarts")
    if layout.num_ranks == 1:
        return False
    if asked[RAY] is not None:
        if find_world() is not None:
            raise InputError(f"{RAY} starts the ranks by itself; leave out torchrun")
        from qbench.cli.ray_ranks import run_ranks_under_ray

        how = (asked[RAY], layout.num_ranks, threads or 1, asked[RESTARTS])
        raise click.exceptions.Exit(run_ranks_under_ray(*how))
    _meet(layout, asked[TIMEOUT], asked[LINK], about)
    return True


def join_world(model: str, options: RunOptions) -> RunOptions:
    """As `join`, for all ranks that torchrun started, which divide no model yet."""
    _meet(RankLayout(tp=present(find_world()).size), TIMEOUT_S, AUTO, partial(_model_file, model))
    return _with_share(options)


def _model_file(model: str) -> dict[str, str | None]:
    from qbench.sources import open_source

    return {"model file": open_source(model).fingerprint()}


def _with_share(options: RunOptions) -> RunOptions:
    return options.with_threads(options.threads or own_cores())


def _meet(layout: RankLayout, timeout_s: float, link: str, about: Callable[[], dict[str, str | None]]) -> None:
    check_world(layout)
    from qbench.runtime.parallel import agree, join_ranks

    ranks = join_ranks(layout, timeout_s, link)
    code = code_version()
    facts = {"command line": " ".join(sys.argv[1:]), "commit": code.commit, "code": code.code}
    agree(ranks.meeting, facts | about())


def follows(model: str, options: RunOptions) -> bool:
    """Follow rank 0 until it parts, if this is another rank; the ranks have joined. False: this rank schedules"""
    if options.layout.num_ranks == 1 or not is_silent():
        return False
    from qbench.calibration.open_subject import open_subject
    from qbench.runtime import load_model
    from qbench.runtime.parallel import RankModel, follow

    subject = open_subject(model, options)
    part = load_model(subject.source, subject.options)
    assert isinstance(part, RankModel)
    follow(part)
    return True


def check_engine_ranks(options: RunOptions, refused: Mapping[str, bool]) -> None:
    """raises InputError for a division of an engine, or for options, that several ranks do not have yet

    refused  option -> whether it is given
    """
    if options.layout.num_ranks == 1:
        return
    own = {f"--sp {options.sp}": (options.sp or 1) > 1, f"--dispatch {ALL_TO_ALL}": options.dispatch == ALL_TO_ALL}
    for option, is_given in {**own, **refused}.items():
        if is_given:
            raise InputError(f"{option} does not combine with an engine on {options.layout} yet; leave it out")


def check_launch(arguments: list[str], files_may_divide: bool) -> None:
    """raises InputError if torchrun started several ranks of a command that runs on one

    files_may_divide  the command reads divisions from a file as well
    """
    world = find_world()
    if world is None or world.size == 1:
        has_ray = any(word.partition("=")[0] == RAY for word in arguments)
        if has_ray and not files_may_divide and not _divides(arguments):
            raise InputError(f"{RAY} starts ranks, but none of --tp, --pp, --ep and --sp divides the model among them")
        return
    # torch reads it when it is first imported. Its warnings on a rank that ended would hide the one line about it.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if not files_may_divide and not _divides(arguments):
        raise undivided()


def undivided() -> InputError:
    """For ranks that have nothing to divide"""
    return InputError(
        f"torchrun started {present(find_world()).size} ranks, but none of --tp, --pp, --ep and --sp divides the model "
        "among them; eval, bench, sweep, generate, compare, engine and serve take them"
    )


def _divides(arguments: list[str]) -> bool:
    return any(argument.partition("=")[0] in OPTIONS for argument in arguments)


def is_silent() -> bool:
    """Whether another rank prints in place of this one."""
    world = find_world()
    return world is not None and not world.is_first


def say_late(line: str) -> None:
    """Print an error of a rank that has not joined, unless rank 0 has the same and ends all ranks before.

    torchrun ends all ranks as soon as one fails, so the others wait until rank 0 had time to print.
    """
    time.sleep(RANK_0_FIRST_S)
    print(f"qbench: rank {present(find_world()).rank}: {line}", file=sys.stderr)


def leave() -> None:
    """End the connections of a rank that is done."""
    joined = sys.modules.get("qbench.runtime.parallel.joined")
    if joined is not None:
        with suppress(RuntimeError):
            joined.close_joined()
