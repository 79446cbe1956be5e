"""EngineThread: an engine in a thread of its own, and its events where coroutines wait for them."""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable

from qbench.run.rank_layout import RankError
from qbench.runtime.engine import Engine, Event, Request
from qbench.serve.errors import EngineFailed, Unavailable
from qbench.serve.metrics import Metrics
from quant.errors import InputError

COUNT_EVERY_S = 0.1  # the engine looks at every page to count those that are free: too long for every step


class RequestStream(AsyncIterator[Event]):
    """The events of one request, in order, up to and with its last; closed before that, the request is aborted."""

    def __init__(self, request: Request, abort: Callable[["RequestStream"], None]) -> None:
        self.request = request
        self.request_id: int | None = None  # once the engine has it; the engine's thread alone reads it
        self.told_at = time.perf_counter()  # when its last token came, at first when it was asked
        self.num_tokens = 0
        self._abort = abort
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._is_over = False

    def tell(self, event: Event) -> None:
        """From the engine's thread."""
        self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def __anext__(self) -> Event:
        if self._is_over:
            raise StopAsyncIteration
        event = await self._events.get()
        self._is_over = event.kind != "token"
        return event

    def close(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._abort(self)


class EngineThread:
    """All methods but `start` and `stop` are called from coroutines; their work is done between two steps."""

    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        self._engine = engine
        self._metrics = metrics
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._streams: dict[int, RequestStream] = {}
        self._is_stopping = self._is_ending = False
        self._counted_at = -COUNT_EVERY_S
        self.failure: str | None = None  # why the thread has ended by itself
        self.lost: Exception | None = None  # the error that ends a server on several ranks
        self.on_lost: Callable[[], None] = _nothing
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Abort all requests; return when the running step is over and all pages in the queue are stored."""
        self._commands.put(self._stop)
        self._thread.join()
        self._engine.close()

    async def submit(self, request: Request) -> RequestStream:
        """raises the errors of Engine.submit, EngineFailed if the engine has ended, Unavailable after `abort_all`"""
        stream = RequestStream(request, self._abort_later)
        try:
            await self._done(lambda: self._submit(stream))
        except asyncio.CancelledError:
            stream.close()  # behind the submission in the queue, so it finds the request there
            raise
        return stream

    async def forget(self, version: str | None) -> None:
        """Engine.forget; raises EngineFailed where the engine has ended"""
        await self._done(lambda: self._engine.forget(version))

    async def _done(self, command: Callable[[], None]) -> None:
        """Returns when the engine's thread has done it; raises its errors."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[None] = loop.create_future()

        def obey() -> None:
            error: Exception | None = None
            try:
                if self.failure is not None:
                    raise EngineFailed(self.failure)
                command()
            except (InputError, EngineFailed, Unavailable) as refusal:
                error = refusal
            loop.call_soon_threadsafe(settle, answer, error)

        self._commands.put(obey)
        await answer

    def _submit(self, stream: RequestStream) -> None:
        if self._is_ending:
            raise Unavailable("the server is ending")
        stream.request_id = self._engine.submit(stream.request)
        self._streams[stream.request_id] = stream

    def _abort_later(self, stream: RequestStream) -> None:
        self._commands.put(lambda: self._abort(stream))

    def _abort(self, stream: RequestStream) -> None:
        if stream.request_id is not None:
            self._engine.abort(stream.request_id)

    def check_ranks(self) -> None:
        """To be called once stopped. raises RankError if another rank has ended"""
        self._engine.model.idle()

    def abort_all(self) -> None:
        """Every request that runs or waits ends at the next step, and later ones are refused."""
        self._commands.put(self._abort_all)

    def _stop(self) -> None:
        self._is_stopping = True
        self._abort_all()

    def _abort_all(self) -> None:
        self._is_ending = True
        for request_id in self._streams:
            self._engine.abort(request_id)

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._obey(wait=not self._engine.has_work)
                for event in self._engine.step():
                    self._tell(event)
                self._count()
        except RankError as error:
            self._lose(error)
            self._fail(str(error))
        except Exception as error:  # whatever it is, those who wait must hear of it
            logging.getLogger(__name__).exception("the engine failed")
            if self._engine.model.idle_s is not None:  # the other ranks would wait for an order until a time-out
                self._lose(error)
            self._fail(f"{type(error).__name__}: {error}")

    def _lose(self, error: Exception) -> None:
        self.lost = error
        self.on_lost()

    def _fail(self, reason: str) -> None:
        """All requests fail, those to come too."""
        self.failure = f"the engine failed: {reason}"
        for request_id in list(self._streams):
            self._tell(Event(request_id, "failed", error=self.failure))
        while not self._is_stopping:
            self._obey(wait=True)

    def _count(self) -> None:
        """For whoever reads the metrics; at the end of work always."""
        now = time.perf_counter()
        if now - self._counted_at >= COUNT_EVERY_S or not self._engine.has_work:
            self._metrics.stats, self._counted_at = self._engine.stats(), now

    def _obey(self, wait: bool) -> None:
        """Do the requested work; if there is nothing to do, wait for more."""
        while True:
            try:
                command = self._commands.get(block=wait, timeout=self._until_idle())
            except queue.Empty:
                if not wait:
                    return
                continue
            command()
            wait = False

    def _until_idle(self) -> float | None:
        """Seconds until the other ranks need an order again; one that is due is given. None: they never do"""
        model = self._engine.model
        if self.failure is not None or model.idle_s is None:
            return None
        if model.idle_s <= 0:  # commands alone, such as refused requests, give no orders
            model.idle()
        return model.idle_s

    def _tell(self, event: Event) -> None:
        stream = self._streams[event.request_id]
        now = time.perf_counter()
        if event.kind == "token":
            self._metrics.token(now - stream.told_at, is_first=stream.num_tokens == 0)
            stream.told_at, stream.num_tokens = now, stream.num_tokens + 1
        else:
            del self._streams[event.request_id]
            self._metrics.ended(event.finish_reason or event.kind)
        stream.tell(event)


def _nothing() -> None:
    """For servers of one rank."""


def settle(answer: asyncio.Future, error: Exception | None) -> None:
    """Whoever asked may be gone."""
    if answer.done():
        return
    if error is None:
        answer.set_result(None)
    else:
        answer.set_exception(error)
