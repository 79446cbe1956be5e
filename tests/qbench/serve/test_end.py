"""Requests that outlast the end of their server, and clients that do not read: an error, and no traceback."""

import asyncio
import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import uvicorn
from starlette.exceptions import HTTPException
from support import patient
from support.tiny_server import running, tiny_subject
from support.waits import WAIT_S
from uvicorn.server import ServerState

from qbench.runtime.engine import EngineOptions
from qbench.serve.app import create_app
from qbench.serve.guarded_protocol import guarded
from qbench.serve.limits import BodyLimit, ServeLimits, TimeLimit
from qbench.serve.server import CUT_S, GRACE_S, LEAST_S, GracefulServer, server_config

ASKED = {"model": "tiny", "prompt": "Once upon a time", "temperature": 0, "max_tokens": 200}
OPTIONS = EngineOptions(num_pages=64)
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
NEVER_S = 3600


class StuckStep:
    """Takes the place of an engine's step; the one after `free` steps takes until `may_end`."""

    def __init__(self, step, free: int) -> None:
        self.step, self.free = step, free
        self.is_stuck, self.may_end = threading.Event(), threading.Event()

    def __call__(self):
        self.free -= 1
        if self.free < 0:
            self.is_stuck.set()
            self.may_end.wait(WAIT_S)
        return self.step()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_request_whose_step_outlasts_the_server_ends_in_an_error(monkeypatch, capsys, stream):
    monkeypatch.setattr("qbench.serve.server.GRACE_S", 0.05)
    monkeypatch.setattr("qbench.serve.server.CUT_S", 0.2)

    def ask(url: str, stuck: StuckStep) -> httpx.Response:
        try:
            return patient.post(f"{url}/v1/completions", json=ASKED | {"stream": stream})
        finally:
            stuck.may_end.set()

    with ThreadPoolExecutor() as pool:
        with running(tiny_subject(), OPTIONS) as server:
            engine = server.served.engine._engine
            stuck = StuckStep(engine.step, free=3 if stream else 0)
            monkeypatch.setattr(engine, "step", stuck)
            asked = pool.submit(ask, server.url, stuck)
            assert stuck.is_stuck.wait(WAIT_S)
        answer = asked.result()
    last = answer.text.strip().splitlines()[-1].removeprefix("data: ")
    assert answer.status_code == (200 if stream else 503)
    assert json.loads(last)["error"]["message"] == "the server is ending"
    messages = capsys.readouterr().err
    assert "Cancel 1 running task" in messages and "Traceback" not in messages


def test_time_counts_from_the_signal_even_if_it_is_obeyed_late():
    """A busy machine may run the event loop only seconds after the signal."""
    now = [100.0]
    with running(tiny_subject(), OPTIONS) as server:
        config = server_config(create_app(server.served), ServeLimits(), "error")
        ending = GracefulServer(config, server.served.engine)
    ending.clock = lambda: now[0]
    assert ending.left(GRACE_S) == GRACE_S, "no signal came: the server ends by itself"
    ending.handle_exit(signal.SIGTERM, None)
    now[0] += 1.0
    assert (ending.left(GRACE_S), ending.left(CUT_S)) == (GRACE_S - 1, CUT_S - 1) and ending.should_exit
    now[0] += 9.0
    assert ending.left(GRACE_S) == ending.left(CUT_S) == LEAST_S


def test_requests_that_come_after_all_were_aborted_are_refused():
    with running(tiny_subject(), OPTIONS) as server:
        server.served.engine.abort_all()
        answer = patient.post(f"{server.url}/v1/completions", json=ASKED)
    assert answer.status_code == 503 and answer.json()["error"]["message"] == "the server is ending"


@pytest.mark.parametrize("headers, num_sent", [([], 2), ([(b"content-length", b"9")], 1)], ids=["stream", "whole"])
def test_a_client_that_does_not_read_is_left_after_its_time(monkeypatch, headers, num_sent):
    """An answer whose length was sent takes no event."""
    monkeypatch.setattr("qbench.serve.limits.FAREWELL_S", 0.02)
    asked = []

    async def app(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await asyncio.sleep(NEVER_S)

    async def send(message) -> None:
        asked.append(message)
        if len(asked) > 1:
            await asyncio.sleep(NEVER_S)

    asyncio.run(TimeLimit(app, 0.02)({"type": "http"}, None, send))
    assert len(asked) == num_sent


def test_a_client_that_leaves_is_no_error_while_too_much_is_held():
    """The second request breaks the limit; the first hears meanwhile that its client has left."""
    heard, has_broken, is_over = [], asyncio.Event(), asyncio.Event()
    body = {"type": "http.request", "body": b"x" * 8}
    news = iter([body, {"type": "http.disconnect"}])

    async def app(scope, receive, send) -> None:
        if scope["path"] == "/second":
            with pytest.raises(HTTPException, match="hold too many bytes"):
                await receive()
            has_broken.set()
            await is_over.wait()  # its refusal is sent
            return
        await receive()
        await has_broken.wait()
        heard.append(await receive())
        is_over.set()

    async def receive_first():
        return next(news)

    async def receive_second():
        return body

    async def main() -> None:
        limit = BodyLimit(app, ServeLimits(client_bytes=10))
        receives = {"/first": receive_first, "/second": receive_second}
        scopes = [{"type": "http", "path": path, "headers": []} for path in receives]
        await asyncio.gather(*(limit(scope, receives[scope["path"]], None) for scope in scopes))

    asyncio.run(main())
    assert heard == [{"type": "http.disconnect"}]


class Stalled(asyncio.Transport):
    """A connection to a client that does not read and does not leave."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        pass

    def is_closing(self) -> bool:
        return True


def test_an_application_does_not_answer_a_request_that_was_refused_meanwhile():
    heard = []

    async def app(scope, receive, send) -> None:
        heard.append(await receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def main() -> None:
        config = uvicorn.Config(app, http=guarded(ServeLimits()), ws="none", log_config=None)
        state = ServerState()
        protocol, stalled = guarded(ServeLimits())(config, state, {}), Stalled()
        protocol.connection_made(stalled)
        protocol.data_received(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        (task,) = state.tasks
        await asyncio.sleep(0)  # the application waits for the body
        protocol.data_received(b"no length\r\n")
        await asyncio.wait_for(task, 10)
        protocol.connection_lost(None)
        assert stalled.written.startswith(b"HTTP/1.1 400") and stalled.written.count(b"HTTP/1.1 ") == 1

    asyncio.run(main())
    assert heard == [{"type": "http.disconnect"}]
