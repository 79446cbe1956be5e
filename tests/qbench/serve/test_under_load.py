"""Many clients, clients that leave, and an engine that cannot go on."""

import asyncio
import json
import socket
import time

import httpx
import openai
import pytest
from support import patient
from support.tiny_server import running, tiny_subject
from support.waits import WAIT_S

from qbench.runtime.engine import EngineOptions

ASKED = {"model": "tiny", "prompt": "Once upon a time", "temperature": 0}
LONG = ASKED | {"max_tokens": 450}
ENDLESS = ASKED | {"max_tokens": 16000}  # so many steps that whoever leaves has left long before the last
PAGES = 2048
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def until(condition) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "it never became so"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def narrow():
    """Room for two of the endless requests; no request is kept after its end."""
    with running(tiny_subject(context=20000), EngineOptions(num_pages=PAGES, max_batch=4, prefix_caching=False)) as it:
        yield it


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_client_that_leaves_frees_its_pages(narrow, stream):
    aborts = narrow.ended("abort")
    body = json.dumps(ENDLESS | {"stream": stream}).encode()
    host, port = narrow.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        if stream:
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
        until(lambda: narrow.stats.free_pages < PAGES)
    until(lambda: narrow.ended("abort") == aborts + 1 and narrow.stats.running == 0)
    assert narrow.stats.free_pages == PAGES


def test_every_choice_ends_with_its_client(narrow):
    aborts = narrow.ended("abort")
    with patient.Client() as client:
        body = ENDLESS | {"stream": True, "n": 6}
        with client.stream("POST", f"{narrow.url}/v1/completions", json=body) as answer:
            next(answer.iter_lines())
    until(lambda: narrow.ended("abort") == aborts + 6)
    assert narrow.stats.free_pages == PAGES


def test_a_request_that_never_fits_is_the_clients_mistake():
    """Clients repeat a request after 503, which would not help here."""
    with running(tiny_subject(), EngineOptions(num_pages=8)) as server:
        with pytest.raises(openai.BadRequestError, match="but there are 8; ask for less") as caught:
            server.client().completions.create(**LONG)
        assert (caught.value.status_code, caught.value.type) == (400, "invalid_request_error")
        assert server.client().completions.create(**ASKED, max_tokens=4).usage.completion_tokens == 4


def test_a_thousand_at_once_are_answered_or_asked_to_come_again():
    """Each is answered in full, the same text, or refused with 429; the server goes on."""
    options = EngineOptions(num_pages=64, max_batch=16, max_queue=200)
    with running(tiny_subject(), options) as server:
        answers = asyncio.run(_all_at_once(server.url, 1000))
        codes = [code for code, _ in answers]
        assert set(codes) == {200, 429}
        assert len({text for code, text in answers if code == 200}) == 1
        assert all("try again later" in text for code, text in answers if code == 429)
        assert server.ended("length") == codes.count(200) and server.ended("refused") == codes.count(429)
        until(lambda: server.stats.running == 0)
        assert server.stats.free_pages == 64
        assert server.client().completions.create(**ASKED, max_tokens=4).usage.completion_tokens == 4


async def _all_at_once(url: str, count: int) -> list[tuple[int, str]]:
    limits = httpx.Limits(max_connections=count)
    async with httpx.AsyncClient(limits=limits, timeout=WAIT_S) as client:

        async def one() -> tuple[int, str]:
            answer = await client.post(f"{url}/v1/completions", json=ASKED | {"max_tokens": 4})
            body = answer.json()
            return answer.status_code, body["choices"][0]["text"] if answer.is_success else body["error"]["message"]

        return await asyncio.gather(*(one() for _ in range(count)))


def test_metrics_report_the_requests():
    with running(tiny_subject(), EngineOptions(num_pages=64)) as server:
        client, began = server.client(), time.perf_counter()
        for _ in range(2):
            client.completions.create(**(ASKED | {"prompt": "x" * 100}), max_tokens=10)
        elapsed = time.perf_counter() - began
        with pytest.raises(openai.BadRequestError):
            client.completions.create(**ASKED, max_tokens=0)
        until(lambda: server.stats.running == 0)
        told = server.metrics()
    assert told["qbench_time_to_first_token_seconds_count"] == 2
    assert told["qbench_time_per_output_token_seconds_count"] == 18
    sums = [told[f"qbench_time_{name}_seconds_sum"] for name in ("to_first_token", "per_output_token")]
    assert min(sums) > 0 and sum(sums) < elapsed, "the times of a request's tokens do not overlap"
    assert told['qbench_requests_total{ended_by="length"}'] == 2
    assert told['qbench_requests_total{ended_by="refused"}'] == 1
    assert told["qbench_generated_tokens_total"] == 20
    assert 96 <= told["qbench_prefix_hit_tokens_total"] < told["qbench_prefix_lookup_tokens_total"] <= 202
    assert told["qbench_pages"] == told["qbench_pages_free"] == 64


def test_an_engine_that_fails_informs_all_waiting_and_later_requests(monkeypatch, caplog):
    with running(tiny_subject(), EngineOptions(num_pages=64)) as server:
        engine = server.served.engine._engine
        steps = iter(range(3))

        def step(original=engine.step):
            if next(steps, None) is None:
                raise MemoryError("no memory left")
            return original()

        monkeypatch.setattr(engine, "step", step)
        with patient.Client() as client:
            with client.stream("POST", f"{server.url}/v1/completions", json=LONG | {"stream": True}) as answer:
                lines = [line for line in answer.iter_lines() if line]
            assert "no memory left" in json.loads(lines[-1].removeprefix("data: "))["error"]["message"]
            late = client.post(f"{server.url}/v1/completions", json=ASKED)
            assert late.status_code == 500 and "no memory left" in late.json()["error"]["message"]
            assert client.get(f"{server.url}/health").status_code == 500
    assert "no memory left" in caplog.text  # with its traceback, for whoever runs the server


def test_an_end_aborts_waiting_requests_with_an_error():
    options = EngineOptions(num_pages=PAGES, max_batch=4, prefix_caching=False)
    with patient.Client() as client:
        with running(tiny_subject(context=20000), options) as server:
            stream = client.stream("POST", f"{server.url}/v1/completions", json=ENDLESS | {"stream": True})
            answer = stream.__enter__()
            lines = answer.iter_lines()
            assert next(lines).startswith("data: ")
        told = [line for line in lines if line]
        assert json.loads(told[-1].removeprefix("data: "))["error"]["message"] == "the server is ending"
        stream.__exit__(None, None, None)
