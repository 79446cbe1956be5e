"""Door: the checks of a request that need its headers alone, before its body is read."""

import re
import secrets
from collections.abc import Callable, Collection
from contextlib import suppress
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from qbench.serve.errors import Refused, refusal
from quant.errors import InputError

OPEN_PATHS = ("/health",)  # without a key
ANY_HOST = "*"
AMBIGUOUS = "ambiguous_length"
HOST = re.compile(r"(?P<name>\[[^\[\]@/]*\]|[^\[\]@/:\s]*)(:[0-9]*)?")


class Door:
    """Refuse a request for another host name, without the key, or of ambiguous length.

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
            self._check_length(headers, scope["http_version"])
            self._check_host(headers.get(b"host", b"").decode("latin-1"))
            self._check_key(scope["path"], headers.get(b"authorization", b""))
        except Refused as error:
            self._on_refusal()
            answer = refusal(error)
            if error.code == AMBIGUOUS:  # bytes that follow may be part of the body, and are no next request
                answer.headers["connection"] = "close"
            await answer(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _check_length(self, headers: dict[bytes, bytes], version: str) -> None:
        """A proxy and this server could disagree about the end of such a body (request smuggling). raises Refused

        source   RFC 9112, section 6.1
        """
        if b"transfer-encoding" not in headers:
            return
        if b"content-length" in headers:
            raise Refused(400, "Content-Length next to Transfer-Encoding; send one of them", AMBIGUOUS)
        if version == "1.0":
            raise Refused(400, "Transfer-Encoding in HTTP/1.0; send Content-Length", AMBIGUOUS)

    def _check_host(self, header: str) -> None:
        """raises Refused"""
        if HOST.fullmatch(header) is None:
            raise Refused(400, f"Host {header[:100]!r} is no host; expected a name or an address, and a port")
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
    """ "Name:80" -> "name", "[::1]:80" -> "::1"; `header` has the form HOST"""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower().rstrip(".")


def is_address(name: str) -> bool:
    with suppress(ValueError):
        return bool(ip_address(name))
    return False


def check_api_key(api_key: str | None) -> None:
    """raises InputError for a key that no header can hold, or that says nothing"""
    if api_key is not None and (not api_key or any(not "!" <= character <= "~" for character in api_key)):
        raise InputError(
            "the API key is empty or has characters other than visible ASCII; make one by `openssl rand -hex 32`"
        )


def is_loopback(host: str) -> bool:
    """Whether a server on this address is reached from its own machine alone."""
    return host == "localhost" or (is_address(host) and ip_address(host).is_loopback)
