"""BodyLimit: a request's body is read only as far as a body may go, and only while all bodies fit together."""

from collections import Counter

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qbench.serve.limits import ServeLimits


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
