"""Meetings of ranks: `torchrun --rdzv-backend qbench`, and a port that stays free for them."""

import socket
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import (
        RendezvousHandler,
        RendezvousHandlerCreator,
        RendezvousInfo,
        RendezvousParameters,
    )

USES_PORT = ("eaddrinuse", "address already in use")


def plugin() -> "RendezvousHandlerCreator":
    """Entry point of the group torchrun.handlers: the maker of the handler. torchrun loads it in every run."""
    return make_handler


def make_handler(params: "RendezvousParameters") -> "RendezvousHandler":
    """params.config has the rank of the node, from --rdzv-conf rank=0"""
    from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import create_rdzv_handler

    if not str(params.config.get("rank", "")).isdecimal():
        leave("--rdzv-backend qbench needs the number of this host, such as --rdzv-conf rank=0")
    params.config["rank"] = int(params.config["rank"])
    try:
        handler = create_rdzv_handler(params)
    except ValueError:
        leave(f"--rdzv-endpoint {params.endpoint!r}: expected HOST:PORT, of the host with rank=0")
    if params.config["rank"] == 0:
        check_port(params.endpoint)
    meet = handler.next_rendezvous

    def meet_or_leave() -> "RendezvousInfo":
        try:
            return meet()
        except RuntimeError as error:
            leave(obstacle_of(error, params.endpoint, "--rdzv-endpoint"))

    handler.next_rendezvous = meet_or_leave
    handler.get_backend = lambda: params.backend
    return handler


def check_port(endpoint: str) -> None:
    """Leave if a program listens at the port of this host. torch would write lines of its own about it."""
    port = int(endpoint.rpartition(":")[2])
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        leave(obstacle_of(error, endpoint, "--rdzv-endpoint"))


def leave(message: str) -> NoReturn:
    """End torchrun before it starts a rank."""
    print(f"qbench: {message}", file=sys.stderr)
    sys.exit(2)


def obstacle_of(error: Exception, place: str, option: str) -> str:
    """One line on a meeting that failed at this place, which an option of torchrun names."""
    if any(words in str(error).lower() for words in USES_PORT):
        return f"{place} is in use by another program; choose another port with {option} of torchrun"
    return f"no answer at {place} ({str(error).splitlines()[0][:200]}); check the address and {option} of torchrun"


def hold_port() -> socket.socket:
    """A socket whose port no other program gets by chance, while it is open, and which one that asks for it can have.

    It does not listen, and both programs set SO_REUSEADDR, as stores of torch do.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("", 0))
    return held
