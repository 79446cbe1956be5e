"""Door: the checks of a request that need its headers alone, before its body is read."""

import secrets
from collections.abc import Callable, Collection
from contextlib import suppress
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from qbench.serve.errors import Refused, refusal

OPEN_PATHS = ("/health",)  # without a key
ANY_HOST = "*"


class Door:
    """Refuse a request for another host name, or without the key.

    A page of a stranger can point its own host name at a loopback address (DNS rebinding); its requests then carry
    that name. An address in numbers cannot be pointed elsewhere, so those are let in.

    allowed_hosts  names besides localhost; "*" allows all
    api_key        that every path but OPEN_PATHS needs; None: no path does
    on_refusal     called once per refused request
    """

    def __init__(
        self, app: ASGIApp, allowed_hosts: Collection[str], api_key: str | None, on_refusal: Callable[[], None]
    ) -> None:
        self.app = app
        self._hosts = {name.lower().rstrip(".") for name in ("localhost", *allowed_hosts)}
        self._api_key = None if api_key is None else api_key.encode()
        self._on_refusal = on_refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            headers = dict(scope["headers"])
            self._check_host(headers.get(b"host", b"").decode("latin-1"))
            self._check_key(scope["path"], headers.get(b"authorization", b""))
        except Refused as error:
            self._on_refusal()
            await refusal(error)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _check_host(self, header: str) -> None:
        """raises Refused"""
        name = host_name(header)
        if ANY_HOST in self._hosts or name in self._hosts or is_address(name):
            return
        raise Refused(421, f"host {name[:100]!r} is not served here; start the server with --allowed-host to allow it")

    def _check_key(self, path: str, authorization: bytes) -> None:
        """raises Refused"""
        if self._api_key is None or path in OPEN_PATHS:
            return
        if not secrets.compare_digest(authorization.removeprefix(b"Bearer "), self._api_key):
            raise Refused(401, "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'")


def host_name(header: str) -> str:
    """ "Name:80" -> "name", "[::1]:80" -> "::1" """
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower().rstrip(".")


def is_address(name: str) -> bool:
    with suppress(ValueError):
        return bool(ip_address(name))
    return False


def is_loopback(host: str) -> bool:
    """Whether a server on this address is reached from its own machine alone."""
    return host == "localhost" or (is_address(host) and ip_address(host).is_loopback)
