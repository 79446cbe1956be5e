"""BodyLimit: a request's body is read only as far as a body may go."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 16 << 20  # a context of a million tokens takes 4 MB as text, 8 MB as ids


class BodyLimit:
    """Answers 413 to a longer one, told by its header or found while it comes; without it all would be held."""

    def __init__(self, app: ASGIApp, most_bytes: int = MOST_BYTES) -> None:
        self.app = app
        self.most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        told = dict(scope["headers"]).get(b"content-length", b"0")
        num_bytes = 0

        async def counted() -> Message:
            """raises HTTPException, which the app answers with its status"""
            nonlocal num_bytes
            if told.isdigit() and int(told) > self.most_bytes:
                raise HTTPException(413, f"the body has {int(told)} bytes, expected at most {self.most_bytes}")
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > self.most_bytes:
                raise HTTPException(413, f"the body is longer than {self.most_bytes} bytes")
            return message

        await self.app(scope, counted, send)
