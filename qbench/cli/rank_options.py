"""--ranks: one model on several ranks, which torchrun or Ray starts."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import click

from qbench.cli.annex import Launch
from qbench.cli.run_options import asked_processes
from qbench.measure.host.commit import code_version
from qbench.measure.host.machine import own_cores
from qbench.run.options import RunOptions
from qbench.run.rank_layout import (
    ALL_TO_ALL,
    AUTO,
    TIMEOUT_S,
    RankLayout,
    RankProcesses,
    check_world,
    farewells,
    find_world,
)
from quant.errors import InputError
from quant.present import present

OPTION = "--ranks"
DIVIDING = (OPTION, "--cluster", "--instances", "--divisions")
FILES_DIVIDE = "sweep"  # the command that reads divisions from a file as well
RANK_0_FIRST_S = 5.0  # Python takes about a second to reach the check of the options, and more on a busy machine


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
    processes = asked_processes()
    if layout.num_ranks == 1:
        refuse_undivided()
        return False
    if processes.ray is not None:
        if find_world() is not None:
            raise InputError(f"{OPTION}: ray starts the ranks by itself; leave out torchrun")
        from qbench.cli.ray_ranks import run_ranks_under_ray

        how = (processes.ray, layout.num_ranks, threads or 1, processes.restarts)
        raise click.exceptions.Exit(run_ranks_under_ray(*how))
    _meet(layout, processes.timeout_s, processes.link, about)
    return True


def refuse_undivided() -> None:
    """raises InputError for several processes of a command on one rank, and for options of their processes"""
    if asked_processes() != RankProcesses():
        raise InputError(f"{OPTION} names how ranks run, but none of tp, pp, ep and sp divides the model among them")
    if (world := find_world()) is not None and world.size > 1:
        raise undivided()


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
    layout = options.layout
    own = {f"sp={layout.sp}": layout.sp > 1, f"dispatch={ALL_TO_ALL}": layout.dispatch == ALL_TO_ALL}
    for option, is_given in {**own, **refused}.items():
        if is_given:
            raise InputError(f"{option} does not combine with an engine on {layout} yet; leave it out")


def undivided() -> InputError:
    """For ranks that have nothing to divide"""
    return InputError(
        f"torchrun started {present(find_world()).size} ranks, but no {OPTION} divides the model among them; eval, "
        "bench, sweep, generate, compare, engine and serve take it"
    )


def is_silent() -> bool:
    """Whether another rank prints in place of this one."""
    world = find_world()
    return world is not None and not world.is_first


class RankLaunch(Launch):
    """A command on one of the ranks that torchrun started; rank 0 prints."""

    @property
    def is_silent(self) -> bool:
        return is_silent()

    def check(self, arguments: list[str]) -> None:
        """raises InputError if torchrun started several ranks of a command that runs on one"""
        world = find_world()
        if world is None or world.size == 1:
            return
        # torch reads it when it is first imported. Its warnings on a rank that ended would hide the one line about it.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        options = {argument.partition("=")[0] for argument in arguments}
        if arguments[:1] != [FILES_DIVIDE] and not options & set(DIVIDING):
            raise undivided()

    def fail(self, line: str, status: int) -> int:
        """Print the line, leave it for the other ranks, and end without a wait for messages that nobody takes."""
        if not self.is_silent:
            super().fail(line, status)
        elif not farewells:
            say_late(line)
        if farewells:
            for farewell in farewells:
                farewell(line)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        return status

    def end(self) -> None:
        """End the connections of a rank that is done."""
        joined = sys.modules.get("qbench.runtime.parallel.joined")
        if joined is not None:
            with suppress(RuntimeError):
                joined.close_joined()


def say_late(line: str) -> None:
    """Print an error of a rank that has not joined, unless rank 0 has the same and ends all ranks before.

    torchrun ends all ranks as soon as one fails, so the others wait until rank 0 had time to print.
    """
    time.sleep(RANK_0_FIRST_S)
    print(f"qbench: rank {present(find_world()).rank}: {line}", file=sys.stderr)
