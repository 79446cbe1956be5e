"""From a model's name to a socket that answers."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from types import FrameType

import uvicorn
from fastapi import FastAPI

from qbench.measure.subject import Subject
from qbench.run.rank_layout import RankError
from qbench.runtime import Model, Tokenizer, load_model
from qbench.runtime.cache_suits import check_engine_source
from qbench.runtime.engine import Engine, EngineOptions, StoreOptions, store_opener
from qbench.serve.app import create_app
from qbench.serve.chat_template import ChatTemplate
from qbench.serve.engine_thread import EngineThread
from qbench.serve.guarded_protocol import guarded
from qbench.serve.limits import REQUEST_S, ServeLimits
from qbench.serve.metrics import Metrics
from qbench.serve.served import Served, served_seq_len
from quant.errors import InputError

# From the signal to end: until requests are aborted, and until connections that are still open then are cut. A machine
# that others keep busy takes as long again to answer 100 clients and to end the process.
GRACE_S, CUT_S = 1.5, 2.5
LEAST_S = 0.1  # for either, however late the signal was handled
BACKLOG = 2048  # connections that wait to be accepted: uvicorn's own


def open_served(
    subject: Subject, options: EngineOptions, store: StoreOptions | None = None, chat_template: str | None = None
) -> Served:
    """The model, loaded, and its engine, which waits to be started.

    chat_template  Jinja in place of the model's own; None: the model's own
    store    where prefixes outlive the server; None: they do not
    raises   InputError for a model without a tokenizer, or one that the engine cannot run
    """
    if subject.source.tokenizer is None:
        raise InputError(f"{subject.spec} has no tokenizer, so it has no text to serve; choose a model with one")
    info = subject.source.tokenizer
    tokenizer = Tokenizer(info if chat_template is None else replace(info, chat_template=chat_template))
    leaving = {"--kv-store": store is not None, "--swap-disk": options.swap_disk_bytes > 0}
    check_engine_source(subject.source, subject.options, leaving)
    model = load_model(subject.source, subject.options)
    assert isinstance(model, Model)  # on the CPU
    model.lead()
    open_store = store_opener(subject.source, model, subject.options.compute, store)
    engine = Engine(model, options, tokenizer, open_store)
    metrics = Metrics(engine.stats())
    recipe = subject.options.recipe
    name = subject.spec if recipe is None else f"{subject.spec}:{recipe}"
    max_seq_len = served_seq_len(model.config, engine)
    thread = EngineThread(engine, metrics)
    return Served(
        name, model.config, tokenizer, template_of(tokenizer), thread, metrics, max_seq_len, options.max_queue
    )


def template_of(tokenizer: Tokenizer) -> ChatTemplate | str:
    """The model's own template, or the reason why it cannot be used."""
    if tokenizer.info.chat_template is None:
        return "it has no chat template; start the server with --chat-template"
    try:
        return ChatTemplate(tokenizer)
    except InputError as error:
        return str(error)


def listen(host: str, port: int) -> socket.socket:
    """raises OSError for an address that cannot be had"""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        # The resolver's errors have negative numbers, which os.strerror does not know.
        reason, _, _ = (error.strerror or str(error)).partition(" (while attempting")
        why = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else reason
        raise OSError(f"cannot listen on {host} port {port}: {why}") from error


def run(
    served: Served,
    listening: socket.socket,
    on_ready: Callable[[str], None],
    *,
    api_key: str | None = None,
    allowed_hosts: Collection[str] = (),
    allowed_origins: Collection[str] = (),
    request_s: float = REQUEST_S,
) -> None:
    """Answer until SIGINT or SIGTERM; on_ready is called with the address once both the socket and signals answer.

    raises   RankError if another rank ends, and on several ranks the error that ended the engine
    """
    host, port = listening.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    limits = ServeLimits.of(served.max_seq_len, request_s)
    app = create_app(served, api_key, allowed_hosts, limits, allowed_origins)
    server = GracefulServer(server_config(app, limits, "warning"), served.engine, lambda: on_ready(url))
    served.engine.on_lost = server.end_soon
    try:
        server.run(sockets=[listening])
    except RankError:
        if not server.should_exit:
            raise
        # uvicorn has stopped by a SIGTERM of torchrun, and raised it again by the handler of ranks that join
    if served.engine.lost is not None:
        raise served.engine.lost
    served.engine.check_ranks()


class GracefulServer(uvicorn.Server):
    """Aborts the requests that still run some time after the signal, so that their clients get an error.

    on_ready  called once the server handles signals and accepts connections
    """

    def __init__(
        self, config: uvicorn.Config, engine: EngineThread, on_ready: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(config)
        self.engine, self.on_ready = engine, on_ready
        self.clock: Callable[[], float] = time.monotonic
        self._asked_at: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._asked_at = self.clock() if self._asked_at is None else self._asked_at
        super().handle_exit(sig, frame)

    def left(self, seconds: float) -> float:
        """Seconds from now until so many after the signal."""
        waited = 0.0 if self._asked_at is None else self.clock() - self._asked_at
        return max(LEAST_S, seconds - waited)

    def end_soon(self) -> None:
        """From any thread."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        aborting = asyncio.get_running_loop().call_later(self.left(GRACE_S), self.engine.abort_all)
        self.config.timeout_graceful_shutdown = self.left(CUT_S)  # pyright: ignore[reportAttributeAccessIssue]
        await super().shutdown(sockets)
        aborting.cancel()


def server_config(app: FastAPI, limits: ServeLimits, log_level: str) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=guarded(limits),
        ws="none",
        log_level=log_level,
        access_log=False,
        server_header=False,
        timeout_keep_alive=limits.idle_s,  # pyright: ignore[reportArgumentType]  # a delay of the event loop
    )
