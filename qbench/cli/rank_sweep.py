"""`qbench sweep SUITE --ranks`: the ranks of a sweep, which divide every model of the suite."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.rank_options import is_silent, join_for, undivided
from qbench.cli.run_options import asked_processes
from qbench.measure.records.record import json_hash
from qbench.run.options import RunOptions
from qbench.run.rank_layout import RankProcesses, division_here, find_world
from quant.errors import InputError

if TYPE_CHECKING:
    from qbench.sweeps.ranks import RankExecutor
    from qbench.sweeps.suite.suite import Suite
    from qbench.sweeps.sweep import Selection


def divided(suite: "Suite", options: RunOptions) -> "Suite":
    """The suite, divided as the options ask. raises InputError for divisions of both"""
    if options.layout.num_ranks == 1:
        return suite
    if "division" in suite.axes:
        raise InputError(f"suite {suite.name} names divisions itself; leave out --ranks {options.layout.words}")
    return suite.with_values("division", (str(options.layout),))


def check_one_rank() -> None:
    """raises InputError for ranks, and for options of ranks, of a sweep that divides nothing"""
    world = find_world()
    if world is not None and world.size > 1:
        raise undivided()
    if replace(asked_processes(), ray=None, restarts=0) != RankProcesses() or asked_processes().restarts:
        raise InputError(
            "--ranks: restarts, link and timeout are for ranks that divide a model; with ray, a case of one rank "
            "starts again without them"
        )


def rank_executor(
    suite: "Suite", options: RunOptions, selection: "Selection"
) -> "Callable[[Path], RankExecutor] | None":
    """Join the ranks, or start them under Ray.

    returns  makes the executor of a run's folder, on rank 0; on the others None, after they have measured with rank 0
    raises   InputError as `join_for`, and for ranks with other cases
    """

    def cases() -> dict[str, str | None]:
        from qbench.sweeps.sweep import selected_cases

        own = [replace(case, threads=None).to_json() for case in selected_cases(suite, selection)[1]]
        return {"list of cases": json_hash({"cases": own})}

    layout = options.layout if options.layout.num_ranks > 1 else division_here(suite.axes["division"][0])
    join_for(layout, None, cases)
    from qbench.runtime.parallel import joined_ranks
    from qbench.sweeps.ranks import RankExecutor, follow_cases

    ranks = joined_ranks()
    if is_silent():
        return follow_cases(ranks)
    return lambda folder: RankExecutor(folder, ranks)
