"""The HTTP API: which path does what, and what a refusal looks like."""

import asyncio
import secrets
from contextlib import asynccontextmanager

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException as StarletteHTTPException

from qbench.serve.answering import answer
from qbench.serve.answers import ChatAnswer, CompletionAnswer
from qbench.serve.bodies import ChatBody, CompletionBody
from qbench.serve.body_limit import BodyLimit
from qbench.serve.errors import TYPES, EngineFailed, Refused, Unavailable, error_body, status_of
from qbench.serve.served import Served, names_of
from quant.errors import InputError


def create_app(served: Served, api_key: str | None = None) -> FastAPI:
    """The app; its lifespan is that of the engine's thread. api_key: what clients of /v1 must bring, None: nothing"""

    @asynccontextmanager
    async def lifespan(app: FastAPI):
        served.engine.start()
        yield
        if not isinstance(served.template, str):
            served.template.close()
        await asyncio.to_thread(served.engine.stop)

    app = FastAPI(title="qbench", lifespan=lifespan)
    app.add_middleware(BodyLimit)
    app.include_router(v1(served), prefix="/v1", dependencies=[Depends(key_check(api_key))])

    @app.get("/health")
    def health() -> dict[str, str]:
        if served.engine.failure is not None:
            raise HTTPException(500, served.engine.failure)
        return {"status": "ok"}

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(served.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    for kind in (InputError, Refused, Unavailable, EngineFailed):
        app.add_exception_handler(kind, refuse(served))
    # Starlette's type of a handler takes every Exception; these two take their own kind alone.
    app.add_exception_handler(RequestValidationError, refuse_fields(served))  # pyright: ignore[reportArgumentType]
    app.add_exception_handler(StarletteHTTPException, refuse_path)  # pyright: ignore[reportArgumentType]
    return app


def v1(served: Served) -> APIRouter:
    router = APIRouter()

    @router.get("/models")
    def models() -> dict:
        return {"object": "list", "data": names_of([served])}

    @router.get("/models/{name:path}")
    def model(name: str) -> dict:
        served.check_name(name)
        return names_of([served])[0]

    @router.post("/completions")
    async def completions(body: CompletionBody, http: Request) -> Response:
        served.check_name(body.model)
        # A long text takes its time to be cut into tokens; others are answered meanwhile.
        requests = await asyncio.to_thread(served.completion_requests, body)
        return await answer(http, served.engine, requests, CompletionAnswer(served.name, served.tokenizer), body)

    @router.post("/chat/completions")
    async def chat(body: ChatBody, http: Request) -> Response:
        served.check_name(body.model)
        requests = await asyncio.to_thread(served.chat_requests, body)
        return await answer(http, served.engine, requests, ChatAnswer(served.name, served.tokenizer), body)

    @router.delete("/prefixes", status_code=204)
    async def forget(cache_salt: str | None = None) -> None:
        """What was computed for requests of this salt, or of none, serves none that come from now on."""
        await served.engine.forget(cache_salt)

    return router


def key_check(api_key: str | None):
    """raises Refused, in a request without the key"""

    async def check(http: Request) -> None:
        given = http.headers.get("authorization", "").removeprefix("Bearer ")
        if api_key is not None and not secrets.compare_digest(given.encode(), api_key.encode()):
            raise Refused(401, "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'")

    return check


def refuse(served: Served):
    async def handler(http: Request, error: Exception) -> JSONResponse:
        status, kind, code = status_of(error)
        served.metrics.ended("refused")
        return JSONResponse(error_body(str(error), kind, code), status)

    return handler


def refuse_fields(served: Served):
    async def handler(http: Request, error: RequestValidationError) -> JSONResponse:
        """The first field that is wrong, in one line."""
        first = error.errors()[0]
        is_json = first["type"] != "json_invalid"
        names = [str(part) for part in first["loc"] if part != "body"] if is_json else []
        served.metrics.ended("refused")
        message = f"{'.'.join(names) or 'the body'}: {first['msg']}"
        return JSONResponse(error_body(message, "invalid_request_error", param=names[0] if names else None), 400)

    return handler


async def refuse_path(http: Request, error: StarletteHTTPException) -> JSONResponse:
    message = f"{http.method} {http.url.path}: {error.detail}"
    return JSONResponse(error_body(message, TYPES.get(error.status_code, "server_error")), error.status_code)
