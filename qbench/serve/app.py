"""The HTTP API: its paths, the form of a refusal, and Preparation: few requests become tokens at once."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from fastapi import APIRouter, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException as StarletteHTTPException

from qbench.serve.answering import answer
from qbench.serve.answers import ChatAnswer, CompletionAnswer
from qbench.serve.bodies import ChatBody, CompletionBody, NeutralFields
from qbench.serve.cors import Cors
from qbench.serve.door import Door
from qbench.serve.errors import TYPES, EngineFailed, Refused, Unavailable, error_body, refusal
from qbench.serve.limits import BodyLimit, ServeLimits, TimeLimit
from qbench.serve.served import Served, names_of
from quant.errors import InputError

Result = TypeVar("Result")
AT_ONCE = 2  # the engine computes meanwhile, and a template renders one conversation at a time


class Preparation:
    """most   requests in preparation; the next one is refused with 429"""

    def __init__(self, most: int) -> None:
        self._most, self._count = most, 0
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def run(self, prepare: Callable[[], Result]) -> Result:
        """Result of `prepare`, from a thread. raises Refused, and the errors of `prepare`"""
        if self._count >= self._most:
            raise Refused(429, f"{self._count} requests are in preparation; try again later")
        self._count += 1
        try:
            async with self._turns:
                return await asyncio.to_thread(prepare)
        finally:
            self._count -= 1


MOST_NAMES = 6  # of a field in fields; values of chat_template_kwargs may be deeper


def create_app(
    served: Served,
    api_key: str | None = None,
    allowed_hosts: Collection[str] = (),
    limits: ServeLimits | None = None,
    allowed_origins: Collection[str] = (),
) -> FastAPI:
    """The app; its lifespan is that of the engine's thread.

    api_key          that every path but /health needs; None: no path does
    allowed_hosts    names in the Host header, besides localhost and addresses; "*": all
    limits           None: the limits of the model's context
    allowed_origins  of pages that may use the server from a browser, as `checked_origin` lets them through
    """
    limits = limits or ServeLimits.of(served.max_seq_len)

    @asynccontextmanager
    async def lifespan(app: FastAPI):
        served.engine.start()
        yield
        if not isinstance(served.template, str):
            served.template.close()
        await asyncio.to_thread(served.engine.stop)

    app = FastAPI(title="qbench", lifespan=lifespan)
    app.add_middleware(BodyLimit, limits=limits)
    app.add_middleware(TimeLimit, seconds=limits.request_s)
    app.add_middleware(
        Door, allowed_hosts=allowed_hosts, api_key=api_key, on_refusal=lambda: served.metrics.ended("refused")
    )
    app.add_middleware(Cors, origins=allowed_origins)
    app.include_router(v1(served, Preparation(min(limits.preparing, served.most_choices))), prefix="/v1")

    @app.head("/health", include_in_schema=False)
    @app.get("/health")
    def health() -> dict[str, str]:
        if served.engine.failure is not None:
            raise HTTPException(500, served.engine.failure)
        return {"status": "ok"}

    @app.head("/metrics", include_in_schema=False)
    @app.get("/metrics")
    def metrics() -> Response:
        return Response(served.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    for kind in (InputError, Refused, Unavailable, EngineFailed):
        app.add_exception_handler(kind, refuse(served))
    # Starlette's type of a handler takes every Exception; these two take their own kind alone.
    app.add_exception_handler(RequestValidationError, refuse_fields(served))  # pyright: ignore[reportArgumentType]
    app.add_exception_handler(StarletteHTTPException, refuse_path)  # pyright: ignore[reportArgumentType]
    app.add_exception_handler(Exception, own_mistake)
    return app


def v1(served: Served, preparation: Preparation) -> APIRouter:
    router = APIRouter()

    @router.head("/models", include_in_schema=False)
    @router.get("/models")
    def models() -> dict:
        return {"object": "list", "data": names_of([served])}

    @router.head("/models/{name:path}", include_in_schema=False)
    @router.get("/models/{name:path}")
    def model(name: str) -> dict:
        served.check_name(name)
        return names_of([served])[0]

    @router.post("/completions")
    async def completions(body: CompletionBody, http: Request) -> Response:
        served.check_name(body.model)
        # A long text takes its time to be cut into tokens; others are answered meanwhile.
        requests = await preparation.run(partial(served.completion_requests, body))
        echoed = [request.tokens for request in requests] if body.echo else ()
        shape = CompletionAnswer(served.name, served.tokenizer, echoed, body.logprobs is not None)
        return await answer(http, served.engine, requests, shape, body)

    @router.post("/chat/completions")
    async def chat(body: ChatBody, http: Request) -> Response:
        served.check_name(body.model)
        requests = await preparation.run(partial(served.chat_requests, body))
        return await answer(http, served.engine, requests, ChatAnswer(served.name, served.tokenizer), body)

    @router.delete("/prefixes", status_code=204)
    async def forget(cache_salt: str | None = None) -> None:
        """Later requests reuse nothing that was computed for this salt, or for requests without a salt."""
        await served.engine.forget(cache_salt)

    return router


def refuse(served: Served):
    async def handler(http: Request, error: Exception) -> JSONResponse:
        served.metrics.ended("refused")
        return refusal(error)

    return handler


def refuse_fields(served: Served):
    async def handler(http: Request, error: RequestValidationError) -> JSONResponse:
        """The first field that is wrong, in one line."""
        first = error.errors()[0]
        is_json = first["type"] != "json_invalid"
        names = [str(part) for part in first["loc"] if part != "body"] if is_json else []
        served.metrics.ended("refused")
        reason = first["msg"]
        if first["type"] == "extra_forbidden":
            reason = "not supported by this server"
            if len(names) == 1:
                known = ChatBody if "chat" in http.url.path else CompletionBody
                supported = [field for field in known.model_fields if field not in NeutralFields.model_fields]
                reason = f"{reason}; supported are {', '.join(supported)}"
        message = f"{'.'.join(names[:MOST_NAMES]) or 'the body'}: {reason}"
        return JSONResponse(error_body(message, "invalid_request_error", param=names[0] if names else None), 400)

    return handler


async def own_mistake(http: Request, error: Exception) -> JSONResponse:
    """A bug of the server; its traceback is in the log."""
    return JSONResponse(error_body(f"internal error, {type(error).__name__}", "server_error"), 500)


async def refuse_path(http: Request, error: StarletteHTTPException) -> JSONResponse:
    message = f"{http.method} {http.url.path}: {error.detail}"
    return JSONResponse(error_body(message, TYPES.get(error.status_code, "server_error")), error.status_code)
