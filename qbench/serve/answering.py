"""From requests to an HTTP answer: whole or streamed, and given up when its client is gone."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar

from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, Response, StreamingResponse

from qbench.runtime.engine import Event, Request
from qbench.serve.answers import Answer, Choice, usage_of
from qbench.serve.bodies import SamplingFields, StreamOptions
from qbench.serve.engine_thread import EngineThread, RequestStream
from qbench.serve.errors import Unavailable, body_of
from qbench.serve.wire import Body, ErrorBody

Result = TypeVar("Result")
DONE = "data: [DONE]\n\n"
CLIENT_GONE = Response(status_code=499)  # which nobody reads: as nginx logs it


async def answer(
    http: HttpRequest, engine: EngineThread, requests: Sequence[Request], shape: Answer, body: SamplingFields
) -> Response:
    """raises errors of submitting, and Unavailable if a request could not be ended"""
    num_prompt_tokens = sum(len(request.tokens) for request in requests[:: body.n])
    async with AsyncExitStack() as stack:
        streams = []
        for request in requests:
            streams.append(await engine.submit(request))
            stack.callback(streams[-1].close)
        if not body.stream:
            choices = await unless_gone(http, collect(streams))
            return CLIENT_GONE if choices is None else JSONResponse(shape.whole(choices, num_prompt_tokens))
        # The first event decides the status: after it there is no other way to report an error.
        events = together(streams)
        first = await unless_gone(http, anext(events))
        if first is None:
            return CLIENT_GONE
        usage = body.stream_options or StreamOptions()
        chunks = server_sent(first, events, shape, len(streams), num_prompt_tokens, usage, stack.pop_all())
        return StreamingResponse(chunks, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})


async def collect(streams: Sequence[RequestStream]) -> list[Choice]:
    choices = [Choice() for _ in streams]
    async for index, event in together(streams):
        choices[index].add(event)
    return choices


async def together(streams: Sequence[RequestStream]) -> AsyncIterator[tuple[int, Event]]:
    """The events of all, as they come, each with its stream's place. raises Unavailable for one that failed"""
    waiting = {asyncio.ensure_future(anext(stream)): index for index, stream in enumerate(streams)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=waiting.__getitem__):
                index, event = waiting.pop(task), task.result()
                if event.kind == "failed" or event.finish_reason == "abort":
                    raise Unavailable(event.error or "the server is ending")
                if event.kind == "token":
                    waiting[asyncio.ensure_future(anext(streams[index]))] = index
                yield index, event
    finally:
        for task in waiting:
            task.cancel()


async def unless_gone(http: HttpRequest, work: Awaitable[Result]) -> Result | None:
    """Result of the work; None if the client hangs up before, and the work is cancelled."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(hung_up(http))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        gone.cancel()


async def hung_up(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def server_sent(
    first: tuple[int, Event],
    events: AsyncIterator[tuple[int, Event]],
    shape: Answer,
    num_choices: int,
    num_prompt_tokens: int,
    usage: StreamOptions,
    stack: AsyncExitStack,
) -> AsyncIterator[str]:
    """Lines of server-sent events, with the usage that is asked for. The stack is closed always."""
    choices = [Choice() for _ in range(num_choices)]

    def sent(chunk: Body) -> str:
        is_counted = usage.include_usage and usage.continuous_usage_stats
        return line({**chunk, "usage": usage_of(choices, num_prompt_tokens)} if is_counted else chunk)

    async with stack:
        for index in range(num_choices):
            if (opening := shape.opening(index)) is not None:
                yield sent(opening)
        try:
            async for index, event in preceded(first, events):
                choices[index].add(event)
                if event.text or event.logprob is not None or event.finish_reason is not None:
                    yield sent(shape.chunk(index, event))
        except Unavailable as error:
            yield line(body_of(error))
            return
        if usage.include_usage:
            yield line(shape.usage_chunk(choices, num_prompt_tokens))
        yield DONE


async def preceded(
    first: tuple[int, Event], rest: AsyncIterator[tuple[int, Event]]
) -> AsyncIterator[tuple[int, Event]]:
    yield first
    async for each in rest:
        yield each


def line(value: Body | ErrorBody) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
