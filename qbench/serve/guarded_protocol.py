"""GuardedProtocol: uvicorn's HTTP/1.1 with limits on slow clients and connections, and errors in OpenAI's form."""

import asyncio
import json
import time
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from qbench.serve.errors import TYPES, error_body
from qbench.serve.limits import ServeLimits


class GuardedProtocol(H11Protocol):
    """Closes a connection whose request takes longer than `receive_s` to arrive, and refuses those beyond the limit.

    limits   of the server, set by `guarded`
    """

    limits: ClassVar[ServeLimits] = ServeLimits()
    _began: float | None = None  # start of the arriving request; None: no request arrives
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(503, f"all {self.limits.connections} connections are taken; try again later")
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._watch()
        super().data_received(data)
        if not self._is_arriving():
            self._began = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse(400, f"{msg.rstrip('.')}: expected HTTP/1.1")
        else:
            self.transport.close()

    def _is_arriving(self) -> bool:
        if self.conn.their_state is h11.IDLE:
            return self.cycle is None or bool(self.conn.trailing_data[0])
        return self.conn.their_state is h11.SEND_BODY

    def _watch(self) -> None:
        if self._began is None:
            self._began = time.monotonic()
        if self._timer is None:
            self._timer = self.loop.call_later(self.limits.receive_s, self._check)

    def _check(self) -> None:
        self._timer = None
        if self._began is None or self.transport.is_closing():
            return
        left = self._began + self.limits.receive_s - time.monotonic()
        if left > 0:
            self._timer = self.loop.call_later(left, self._check)
        elif self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self._has_answer():
            self._refuse(408, f"the request took longer than {self.limits.receive_s:g} s to arrive")
        else:
            self.transport.close()

    def _has_answer(self) -> bool:
        return self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete

    def _refuse(self, status: int, message: str) -> None:
        """Answer and close the connection."""
        body = json.dumps(error_body(message, TYPES.get(status, "server_error"))).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        events = (
            h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status]),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        if self.cycle is not None and not self.cycle.response_complete:
            # The application may wait for the body: it hears that its client has left, and its own answer is dropped.
            self.cycle.disconnected = True
            self.cycle.message_event.set()


def guarded(limits: ServeLimits) -> type[GuardedProtocol]:
    """The protocol with these limits; uvicorn makes one per connection, without arguments of ours."""
    return type("GuardedProtocol", (GuardedProtocol,), {"limits": limits})
