"""TimeLimit: no request takes longer than a given time."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qbench.serve.answering import line
from qbench.serve.errors import Unavailable, body_of, refusal

FAREWELL_S = 1.0  # until a client that does not read is left


class TimeLimit:
    """Answers 503 after `seconds`; a stream that has begun ends in an event with the error."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self.app, self.seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        has_begun = False

        async def watched(message: Message) -> None:
            nonlocal has_begun
            has_begun = has_begun or message["type"] == "http.response.start"
            await send(message)

        timeout = asyncio.timeout(self.seconds)
        try:
            async with timeout:
                await self.app(scope, receive, watched)
        except TimeoutError:
            if not timeout.expired():
                raise
            error = Unavailable(f"the request took longer than {self.seconds:g} s; ask for fewer tokens")
            async with asyncio.timeout(FAREWELL_S):
                await (end_stream(send, error) if has_begun else refusal(error)(scope, receive, send))


async def end_stream(send: Send, error: Exception) -> None:
    """One more server-sent event, and the end."""
    await send({"type": "http.response.body", "body": line(body_of(error)).encode(), "more_body": False})
