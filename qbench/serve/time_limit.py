"""TimeLimit: no request takes longer than a given time, or outlasts the end of its server."""

import asyncio
import contextlib

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qbench.serve.answering import line
from qbench.serve.errors import Unavailable, body_of, refusal

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
