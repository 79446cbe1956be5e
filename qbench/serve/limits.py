"""Limits of the server, in bytes, seconds and connections, and the two that wrap the app: BodyLimit and TimeLimit."""

import asyncio
import contextlib
import resource
from collections import Counter
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qbench.serve.answering import line
from qbench.serve.errors import Unavailable, body_of, refusal

MOST_BODY_BYTES = 16 << 20  # a context of a million tokens takes 4 MB as text, 8 MB as ids
LEAST_BODY_BYTES = 1 << 20
BODY_BYTES_PER_TOKEN = 64  # a token id takes up to 8; a text has about 4 characters per token, up to 6 bytes each
REQUEST_S = 600.0
SPARE_FILES = 64  # of the process, in addition to connections: the model, the store, libraries


@dataclass(frozen=True, slots=True)
class ServeLimits:
    """body_bytes      of one request
    held_bytes      bodies of all requests that are not answered yet; client_bytes: of one address
    preparing       requests whose text waits to become tokens, or becomes tokens
    connections     open at once
    receive_s       from the first byte of a request to its last
    request_s       from the end of a request to the end of its answer
    idle_s          that a connection may be without a request: more than the 60 s after which proxies close theirs,
                    or a request could meet the end of the connection
    """

    body_bytes: int = MOST_BODY_BYTES
    held_bytes: int = 256 << 20
    client_bytes: int = 128 << 20
    preparing: int = 1024
    connections: int = 4096
    receive_s: float = 30.0
    request_s: float = REQUEST_S
    idle_s: float = 65.0

    @classmethod
    def of(cls, max_seq_len: int, request_s: float = REQUEST_S) -> "ServeLimits":
        """For a model of this context, on this machine."""
        body_bytes = min(max(max_seq_len * BODY_BYTES_PER_TOKEN, LEAST_BODY_BYTES), MOST_BODY_BYTES)
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        connections = 4096 if files == resource.RLIM_INFINITY else max(min(4096, files - SPARE_FILES), 1)
        return cls(body_bytes=body_bytes, connections=connections, request_s=request_s)


class BodyLimit:
    """Answers 413 to a body that is too long, as its header says or as it arrives, and 429 if too much is held."""

    def __init__(self, app: ASGIApp, limits: ServeLimits) -> None:
        self.app, self.limits = app, limits
        self._held: Counter[str] = Counter()  # bytes of requests without an answer, per address of a client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = self.limits.body_bytes
        told = dict(scope["headers"]).get(b"content-length", b"0")
        client = (scope.get("client") or ("",))[0]
        num_bytes = 0

        async def counted() -> Message:
            """raises HTTPException, which the app answers with its status"""
            nonlocal num_bytes
            if told.isdigit() and int(told[:20]) > most:
                raise HTTPException(413, f"the body has {int(told[:20])} bytes, expected at most {most}")
            message = await receive()
            length = len(message.get("body", b""))
            if not length:  # also the news that a client has left, which no limit may turn into an error
                return message
            num_bytes += length
            self._held[client] += length
            if num_bytes > most:
                raise HTTPException(413, f"the body is longer than {most} bytes")
            if self._held[client] > self.limits.client_bytes or self._held.total() > self.limits.held_bytes:
                raise HTTPException(429, "the requests that wait hold too many bytes; try again later")
            return message

        try:
            await self.app(scope, counted, send)
        finally:
            self._held[client] -= num_bytes
            if self._held[client] == 0:
                del self._held[client]


FAREWELL_S = 1.0  # until a client that does not read is left


class TimeLimit:
    """Answers 503 after `seconds`, or when the server cancels the request; a stream that has begun ends in an event
    with the error.
    """

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self.app, self.seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        has_begun = is_open = False  # is_open: a stream that has begun and not ended

        async def watched(message: Message) -> None:
            nonlocal has_begun, is_open
            await send(message)
            if message["type"] == "http.response.start":
                has_begun, is_open = True, b"content-length" not in dict(message["headers"])
            else:
                is_open = is_open and message.get("more_body", False)

        timeout = asyncio.timeout(self.seconds)
        try:
            async with timeout:
                await self.app(scope, receive, watched)
            return
        except TimeoutError:
            if not timeout.expired():
                raise
            error = Unavailable(f"the request took longer than {self.seconds:g} s; ask for fewer tokens")
        except asyncio.CancelledError:  # by uvicorn, which would log it as a mistake of the application
            error = Unavailable("the server is ending")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                if not has_begun:
                    await refusal(error)(scope, receive, send)
                elif is_open:
                    await end_stream(send, error)


async def end_stream(send: Send, error: Exception) -> None:
    """One more server-sent event, and the end."""
    await send({"type": "http.response.body", "body": line(body_of(error)).encode(), "more_body": False})
