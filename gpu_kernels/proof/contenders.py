"""The contenders of a problem: our kernel in each of its configurations, and the peers."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu_kernels.proof.problems import Peer, Problem

OURS = "triton"


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to solve a problem: `call(index)` runs it on operand set `index`."""

    impl: str
    is_ours: bool
    call: Callable[[int], Any]


def contenders(problem: Problem, arch: int, sets: list[dict[str, Any]]) -> list[Contender]:
    """The default configuration, then every configuration by name, then the peers, each over the same operand sets."""
    ways = {OURS: problem.op.kernel.call} | {f"{OURS} {name}": call for name, call in problem.variants(arch).items()}
    ours = [Contender(impl, True, _over(sets, call)) for impl, call in ways.items()]
    return ours + [Contender(impl, False, _peer_over(sets, peer)) for impl, peer in problem.peers.items()]


def operand_sets(problem: Problem, device: str, count: int) -> list[dict[str, Any]]:
    """The problem's operands, and copies of them in memory of their own."""
    operands = problem.operands(device)
    return [operands, *(copy.deepcopy(operands) for _ in range(count - 1))]


def _over(sets: list[dict[str, Any]], call: Callable[..., Any]) -> Callable[[int], Any]:
    return lambda index: call(**sets[index])


def _peer_over(sets: list[dict[str, Any]], peer: Callable[..., Any] | Peer) -> Callable[[int], Any]:
    if not isinstance(peer, Peer):
        return _over(sets, peer)
    prepared = []

    def call(index: int) -> Any:
        if not prepared:
            prepared.extend(peer.prepare(operands) for operands in sets)
        return peer.call(**prepared[index])

    return call
