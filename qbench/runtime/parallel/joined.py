"""The ranks that this process has joined: one meeting and one link until it ends."""

import os
import signal
import sys
from typing import Any

from qbench.run.rank_layout import AUTO, RankLayout, check_world, farewells
from qbench.runtime.parallel.meeting import Meeting, RankError
from qbench.runtime.parallel.open_link import open_link
from qbench.runtime.parallel.ranks import Ranks
from quant.errors import InputError

_joined: list[Ranks] = []


def join_ranks(layout: RankLayout, timeout_s: float, link: str = AUTO) -> Ranks:
    """The ranks of this process, joined at the first call. Only rank 0 keeps its stdout and stderr.

    timeout_s  longest wait for another rank
    raises     InputError for a process that torchrun did not start, for another number of ranks than the layout's, and
               for a link that these ranks cannot have
    """
    world = check_world(layout)
    if not _joined:
        meeting = Meeting(world.rank, layout.num_ranks, timeout_s)
        _joined.append(Ranks(layout, meeting, open_link(meeting, link)))
        farewells.append(meeting.leave)
        if world.rank != 0 and not os.environ.get("QBENCH_DEBUG"):
            sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")
        signal.signal(signal.SIGTERM, _ended_by_torchrun)
    ranks = joined_ranks()
    ranks.divide(layout)
    return ranks


def joined_ranks() -> Ranks:
    """The ranks that `join_ranks` joined."""
    if not _joined:
        raise InputError("no ranks have joined; call join_ranks first")
    return _joined[0]


def close_joined() -> None:
    """Wait for the others and part, if this process joined ranks."""
    while _joined:
        ranks = _joined.pop()
        farewells.remove(ranks.meeting.leave)
        if ranks.before_parting is not None:
            ranks.before_parting()
        ranks.meeting.part()
        ranks.link.close()


def _ended_by_torchrun(signum: int, frame: Any) -> None:
    raise RankError(joined_ranks().meeting.who_ended())
