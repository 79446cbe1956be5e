"""Cors: pages of which origins a browser lets send requests and read the answers."""

import re
from collections.abc import Collection

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qbench.serve.errors import Refused, refusal
from quant.errors import InputError

ANY_ORIGIN = "*"
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?")
METHODS = b"GET, HEAD, POST, DELETE"
MAX_AGE_S = b"600"  # that a browser remembers the answer to a preflight request


class Cors:
    """Answer preflight requests, and name the allowed origin in other answers, refusals included.

    A browser asks by a preflight request first, without the key, so this comes before the checks of the door. It sends
    no credentials of its own to other origins: a page needs the API key if the server has one.

    origins  such as "http://localhost:3000"; "*" allows all
    source   https://fetch.spec.whatwg.org/#http-cors-protocol
    """

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self.app = app
        self._origins = {origin.encode() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        origin = headers.get(b"origin", b"")
        allowed = self._allowed(origin)
        if origin and scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            if not allowed:
                name = origin[:100].decode("latin-1")
                error = Refused(
                    403, f"pages of {name!r} are not allowed; start the server with --allowed-origin {name}"
                )
                await refusal(error)(scope, receive, send)
                return
            answer = Response(status_code=204)
            answer.raw_headers += [*allowed, *preflight(headers)]
            await answer(scope, receive, send)
            return

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *allowed]}
            await send(message)

        await self.app(scope, receive, named if allowed else send)

    def _allowed(self, origin: bytes) -> list[tuple[bytes, bytes]]:
        """Headers of an answer; empty for an origin that is not allowed."""
        if ANY_ORIGIN.encode() in self._origins:
            return [(b"access-control-allow-origin", b"*")]
        # A cache may not give one page the answer that names another.
        named = [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
        return named if origin in self._origins else []


def preflight(headers: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """Methods and headers that a page may send: all headers, because clients in browsers add headers of their own."""
    found = [(b"access-control-allow-methods", METHODS), (b"access-control-max-age", MAX_AGE_S)]
    if asked := headers.get(b"access-control-request-headers"):
        found.append((b"access-control-allow-headers", asked))
    if b"access-control-request-private-network" in headers:  # from a page of the internet to this machine
        found.append((b"access-control-allow-private-network", b"true"))
    return found


def checked_origin(text: str) -> str:
    """raises InputError for text that is no origin as browsers send it"""
    if text == ANY_ORIGIN:
        return text
    form = ORIGIN.fullmatch(text)
    if form is None or int(form["port"] or 0) > 65535:
        raise InputError(
            f"{text[:100]!r} is no origin; expected a scheme, a host and a port in lower case, such as "
            "http://localhost:3000, or *"
        )
    return text
