"""GlooLink: values travel through sockets."""

import fcntl
import os
import socket
import struct
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from torch import Tensor

from qbench.run.rank_layout import GLOO
from qbench.runtime.parallel.link import Link, LinkError
from quant.errors import InputError

INTERFACE_VARIABLE = "GLOO_SOCKET_IFNAME"  # gloo reads it
ADDRESS_OF_INTERFACE = 0x8915  # SIOCGIFADDR of Linux


class GlooLink(Link):
    """Messages of torch.distributed over sockets; ranks may be on several hosts."""

    name = GLOO

    def __init__(self, store: Any, rank: int, num_ranks: int, timeout_s: float) -> None:
        import torch.distributed as dist  # slow, and of no use to one rank

        self._dist, self._timeout = dist, timedelta(seconds=timeout_s)
        # Gloo takes the address of the host's name, which is often one that no other host reaches.
        interface = interface_to(os.environ["MASTER_ADDR"])
        if interface is not None:
            os.environ.setdefault(INTERFACE_VARIABLE, interface)
        try:
            dist.init_process_group("gloo", store=store, rank=rank, world_size=num_ranks, timeout=self._timeout)
        except RuntimeError as error:
            raise InputError(
                f"rank {rank} cannot connect to the others by {interface or 'any interface'}: "
                f"{str(error).splitlines()[0][:200]}; name one that they reach in {INTERFACE_VARIABLE}"
            ) from error

    def exchange(self, sent: Sequence[tuple[int, Tensor]], received: Sequence[tuple[int, Tensor]]) -> None:
        sends = [(rank, self._call(rank, self._dist.isend, x, rank)) for rank, x in sent]
        receipts = [(rank, self._call(rank, self._dist.irecv, x, rank)) for rank, x in received]
        for rank, work in (*receipts, *sends):
            self._call(rank, work.wait, self._timeout)

    def _call(self, rank: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """function(*arguments), whose failure is that of the other rank"""
        try:
            return function(*arguments)
        except RuntimeError as error:
            said = str(error).lower()
            raise LinkError(rank, "timed out" in said or "timeout" in said) from error

    def close(self) -> None:
        self._dist.destroy_process_group()


def interface_to(host: str) -> str | None:
    """The interface by which this host reaches another one, or itself, by IPv4; None: there is no such one"""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))  # sends nothing
        except OSError:
            return None
        own = probe.getsockname()[0]
        return next((name for _, name in socket.if_nameindex() if _address(probe, name) == own), None)


def _address(probe: socket.socket, interface: str) -> str | None:
    """The first IPv4 address of an interface"""
    try:
        found = fcntl.ioctl(probe.fileno(), ADDRESS_OF_INTERFACE, struct.pack("256s", interface.encode()))
    except OSError:  # an interface without an address
        return None
    return socket.inet_ntoa(found[20:24])
