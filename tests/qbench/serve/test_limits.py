"""Things that no client can do: send slowly for ever, hold all memory, ask under another name, or keep a request for
ever.
"""

import asyncio
import json
import socket
import threading
import time

import pytest
from fastapi import FastAPI
from support import patient
from support.tiny_server import running, tiny_subject
from support.waits import WAIT_S

from qbench.cli.main import main
from qbench.runtime.engine import EngineOptions
from qbench.serve.app import Preparation
from qbench.serve.errors import Refused
from qbench.serve.limits import ServeLimits
from qbench.serve.server import server_config

ASKED = {"model": "tiny", "prompt": "Once upon a time", "temperature": 0, "max_tokens": 4}
OPTIONS = EngineOptions(num_pages=64)
SOON_S = 0.4  # to receive a request; on a busy machine a whole one may take longer
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def strict():
    limits = ServeLimits(body_bytes=4000, client_bytes=3000, receive_s=WAIT_S, connections=8)
    with running(tiny_subject(), OPTIONS, limits=limits, allowed_hosts=("Model.Example",)) as it:
        yield it


@pytest.fixture(scope="module")
def impatient():
    with running(tiny_subject(), OPTIONS, limits=ServeLimits(receive_s=SOON_S)) as it:
        yield it


def said(server, *parts: bytes) -> tuple[int, dict]:
    """Status and body of the answer to raw bytes; the connection stays open for more."""
    address = server.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=WAIT_S) as client:
        for part in parts:
            client.sendall(part)
        got = b""
        while more := client.recv(65536):
            got += more
    head, _, body = got.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


@pytest.mark.parametrize(
    "parts",
    [(), (b"POST /v1/comp",), (HEAD,), (HEAD + b"Content-Length: 100\r\n\r\n", b'{"model": ')],
    ids=["nothing", "half a line", "half the headers", "half the body"],
)
def test_a_request_that_never_ends_is_cut_off(impatient, parts):
    status, error = said(impatient, *parts)
    assert (status, error["type"]) == (408, "invalid_request_error")
    assert f"longer than {SOON_S:g} s" in error["message"]


def test_an_idle_connection_is_kept_as_long_as_proxies_keep_theirs_and_no_longer():
    assert server_config(FastAPI(), ServeLimits(), "warning").timeout_keep_alive > 60
    body = json.dumps(ASKED).encode()
    with running(tiny_subject(), OPTIONS, limits=ServeLimits(idle_s=0.2)) as server:
        address = server.url.removeprefix("http://").split(":")
        with socket.create_connection((address[0], int(address[1])), timeout=30) as client:
            client.sendall(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert b"".join(iter(lambda: client.recv(65536), b"")).startswith(b"HTTP/1.1 200")  # up to its end


def test_the_next_request_of_a_connection_is_timed_by_itself(impatient):
    with patient.Client() as client:
        for _ in range(3):
            began = time.monotonic()
            status = client.post(f"{impatient.url}/v1/completions", json=ASKED).status_code
            assert status == 200 or time.monotonic() - began > SOON_S


@pytest.mark.parametrize("raw", [b"\x16\x03\x01 TLS\r\n\r\n", b"GET\r\n\r\n", HEAD + b"Content-Length: x\r\n\r\n"])
def test_broken_framing_is_refused_in_openais_form(strict, raw):
    status, error = said(strict, raw)
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert set(error) == {"message", "type", "param", "code"}


CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMUGGLED = b"0\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "head, message",
    [
        (HEAD + CHUNKED + b"Content-Length: 4\r\n\r\n", "Content-Length next to Transfer-Encoding"),
        (HEAD + b"Content-Length: 4\r\n" + CHUNKED + b"\r\n", "Content-Length next to Transfer-Encoding"),
        (HEAD.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n", "Transfer-Encoding in HTTP/1.0"),
    ],
    ids=["chunked first", "length first", "HTTP 1.0"],
)
def test_a_body_of_two_lengths_gets_one_answer(strict, head, message):
    """The whole rest of the connection parses as one error, so no second answer follows it."""
    status, error = said(strict, head + SMUGGLED)
    assert status == 400 and message in error["message"]


def test_a_chunked_body_is_read(strict):
    body = json.dumps(ASKED).encode()
    address = strict.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=WAIT_S) as client:
        client.sendall(HEAD + CHUNKED + b"Connection: close\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        assert b"".join(iter(lambda: client.recv(65536), b"")).startswith(b"HTTP/1.1 200")


def test_one_connection_more_than_the_limit_is_refused(strict):
    address = strict.url.removeprefix("http://").split(":")
    with_body = HEAD + b"Content-Length: 10\r\n\r\n"
    held = [socket.create_connection((address[0], int(address[1]))) for _ in range(8)]
    try:
        for one in held:
            one.sendall(with_body)
        status, error = said(strict)
        assert status == 503 and "all 8 connections are taken" in error["message"]
    finally:
        for one in held:
            one.close()


@pytest.mark.parametrize(
    "host, status",
    [
        ("localhost", 200), ("LOCALHOST:80", 200), ("model.example:8000", 200), ("model.example.", 200),
        ("[::1]:1", 200), ("10.0.0.7", 200), ("evil.example", 421), ("", 421), ("localhost.evil.example", 421),
        ("[evil.example]", 421), ("localhost:80@evil.example", 400), ("localhost@evil.example", 400),
        ("localhost/evil.example", 400), ("[::1]evil.example", 400), ("localhost:x", 400), ("local host", 400),
    ],
)  # fmt: skip
def test_other_names_of_the_host_are_refused(strict, host, status):
    got = patient.get(f"{strict.url}/v1/models", headers={"Host": host})
    assert got.status_code == status
    reasons = {421: "start the server with --allowed-host", 400: "is no host; expected a name"}
    assert status == 200 or reasons[status] in got.json()["error"]["message"]


def test_any_name_is_accepted_if_all_are_allowed():
    with running(tiny_subject(), OPTIONS, allowed_hosts=("*",)) as server:
        for host, status in (("evil.example", 200), ("localhost:80@evil.example", 400)):
            assert patient.get(f"{server.url}/v1/models", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    "size, status, message", [(5000, 413, "at most 4000"), (3500, 429, "try again later")], ids=["one", "together"]
)
def test_bodies_that_are_too_long(strict, size, status, message):
    for _ in range(2):
        got = patient.post(f"{strict.url}/v1/completions", json=ASKED | {"user": "x" * size})
        assert got.status_code == status and message in got.json()["error"]["message"]
    assert patient.post(f"{strict.url}/v1/completions", json=ASKED).status_code == 200, "the held places are free again"


def test_a_long_prompt_is_refused_before_it_is_tokens(strict, monkeypatch):
    lengths = []
    encode = strict.served.tokenizer.encode
    monkeypatch.setattr(
        strict.served.tokenizer, "encode", lambda text, *more: lengths.append(len(text)) or encode(text, *more)
    )
    for path, body in (
        ("completions", {"prompt": "x" * 2900}),
        ("chat/completions", {"messages": [{"role": "user", "content": "x" * 2900}]}),
    ):
        got = patient.post(f"{strict.url}/v1/{path}", json={"model": "tiny"} | body)
        assert got.status_code == 400 and "expected at most 512 tokens" in got.json()["error"]["message"]
    assert not lengths


@pytest.mark.parametrize(
    "body",
    [b'{"model": "tiny", "prompt": ' + b"[" * 100_000, b'{"model": "tiny", "prompt": [' + b"0.5," * 200_000 + b"1]}"],
    ids=["nested", "many errors"],
)
def test_bodies_that_are_costly_to_check(body):
    with running(tiny_subject(), OPTIONS) as server:
        got = patient.post(f"{server.url}/v1/completions", content=body, headers={"content-type": "application/json"})
    assert got.status_code == 400 and len(got.json()["error"]["message"]) < 200


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_request_that_takes_too_long_is_ended(stream):
    asked = ASKED | {"max_tokens": 16000, "stream": stream}
    options = EngineOptions(num_pages=2048, prefix_caching=False)
    with running(tiny_subject(context=20000), options, limits=ServeLimits(request_s=0.5)) as server:
        got = patient.post(f"{server.url}/v1/completions", json=asked)
        if stream:
            assert got.status_code == 200
            last = json.loads(got.text.strip().splitlines()[-1].removeprefix("data: "))
        else:
            assert got.status_code == 503
            last = got.json()
        assert last["error"]["message"] == "the request took longer than 0.5 s; ask for fewer tokens"
        assert patient.post(f"{server.url}/v1/completions", json=ASKED).status_code == 200
    assert server.stats.free_pages == 2048


def test_requests_in_preparation_are_counted():
    async def main() -> None:
        preparation, may_end = Preparation(3), threading.Event()
        running = [asyncio.create_task(preparation.run(may_end.wait)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="3 requests are in preparation; try again later") as caught:
            await preparation.run(may_end.wait)
        assert caught.value.status == 429
        may_end.set()
        assert await asyncio.gather(*running) == [True] * 3
        assert await preparation.run(lambda: 5) == 5

    asyncio.run(main())


def test_a_stop_string_that_is_too_long(strict):
    got = patient.post(f"{strict.url}/v1/completions", json=ASKED | {"stop": ["b", "x" * 1025]})
    assert got.status_code == 400 and "a stop string has 1025 characters" in got.json()["error"]["message"]


def test_a_server_error_is_reported_in_openai_form(monkeypatch, caplog):
    with running(tiny_subject(), OPTIONS) as server:
        monkeypatch.setattr(server.served.tokenizer, "encode", lambda *_: 1 / 0)
        got = patient.post(f"{server.url}/v1/completions", json=ASKED)
    assert got.status_code == 500 and got.json()["error"]["message"] == "internal error, ZeroDivisionError"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "my.machine"])
def test_other_machines_need_a_key(host, capsys, monkeypatch):
    monkeypatch.delenv("QBENCH_API_KEY", raising=False)
    assert main(["serve", "ref:llama", "--port", "0", "--host", host]) == 2
    assert f"--host {host} lets other machines in, so clients need a key" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("key", ["", " ", "\t", "two words", "key\n", "k\u00e9y"], ids=ascii)
def test_keys_that_no_client_can_send_are_refused(key, host, capsys):
    assert main(["serve", "ref:llama", "--port", "0", "--host", host, "--api-key", key]) == 2
    assert "the API key is empty or has characters other than visible ASCII" in capsys.readouterr().err
