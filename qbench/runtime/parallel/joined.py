"""The ranks that this process has joined: one meeting and the best link that all can have, until it ends."""

import json
import os
import signal
import sys
from typing import Any

import numpy as np

from qbench.run.rank_layout import AUTO, GLOO, SHM, RankError, RankLayout, check_world, farewells
from qbench.runtime.parallel.gloo_link import GlooLink
from qbench.runtime.parallel.link import Link
from qbench.runtime.parallel.meeting import Meeting
from qbench.runtime.parallel.ranks import Ranks
from qbench.runtime.parallel.shared_memory import Offer, SharedMemoryLink
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


def open_link(meeting: Meeting, wanted: str) -> Link:
    """The same kind on all ranks.

    wanted   one of qbench.run.rank_layout.LINKS; "auto": memory if all ranks share a host
    raises   InputError for a link that these ranks cannot have
    """
    memory = None if wanted == GLOO else _share_memory(meeting, wanted)
    about = (meeting.num_ranks, meeting.rank, meeting.timeout_s)
    if memory is not None:
        return SharedMemoryLink(memory, *about, meeting.has_ended)
    num_ranks, rank, timeout_s = about
    return GlooLink(meeting.store, rank, num_ranks, timeout_s)


def _share_memory(meeting: Meeting, wanted: str) -> np.ndarray | None:
    """Memory that all ranks have mapped; None if they cannot, and "auto" is wanted."""
    hosts = {(host.name, host.identity) for host in meeting.hosts}
    if len(hosts) == 1 and meeting.hosts[0].identity is not None:
        memory, obstacle = _map_memory(meeting)
    else:
        names = ", ".join(sorted({name for name, _ in hosts}))
        memory, obstacle = None, f"the ranks are on {names}, in more than one host, container or user"
    if obstacle and wanted == SHM:
        raise InputError(f"link={SHM} needs memory that all ranks share: {obstacle}; use link={GLOO}")
    return None if obstacle else memory


def _map_memory(meeting: Meeting) -> tuple[np.ndarray | None, str]:
    """Memory of rank 0, and the first obstacle of any rank, equal on all ranks; "" if all have mapped it."""
    num_ranks, memory, obstacle = meeting.num_ranks, None, ""
    offered = Offer.make(num_ranks) if meeting.rank == 0 else Offer()
    taken = Offer.from_json(json.loads(meeting.tell("memory", json.dumps(offered.to_json()))[0]))
    try:
        memory = taken.map(meeting.hosts[0].pid, num_ranks)
    except OSError as error:
        obstacle = str(error)
    obstacle = next(filter(None, meeting.tell("mapped", obstacle)), "")
    offered.close()
    return memory, obstacle


def agree(meeting: Meeting, facts: dict[str, str | None]) -> None:
    """Compare facts of every rank with those of rank 0.

    facts    name -> value on this rank; equal on all ranks
    raises   InputError, on all ranks, that names the first rank and fact that differ
    """
    first, *others = (json.loads(text) for text in meeting.tell("facts", json.dumps(facts)))
    for rank, other in enumerate(others, 1):
        for key, value in first.items():
            if other.get(key) != value:
                raise InputError(
                    f"{meeting.name(rank)} has another {key} than rank 0: got {other.get(key)}, expected {value}; "
                    "give every rank the same"
                )
