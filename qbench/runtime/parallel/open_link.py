"""open_link: the best link that all ranks of a meeting can have."""

import json

import numpy as np

from qbench.run.rank_layout import GLOO, SHM
from qbench.runtime.parallel.gloo_link import GlooLink
from qbench.runtime.parallel.link import Link
from qbench.runtime.parallel.meeting import Meeting
from qbench.runtime.parallel.shared_memory import Offer
from qbench.runtime.parallel.shared_memory_link import SharedMemoryLink
from quant.errors import InputError


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
