"""Pages of allowed origins read every answer in a browser; other pages cannot."""

import pytest
from support import patient
from support.tiny_server import running, tiny_subject

from qbench.runtime.engine import EngineOptions
from qbench.serve.cors import checked_origin
from quant.errors import InputError

PAGE, STRANGER = "http://localhost:3000", "http://localhost:3001"
OPTIONS = EngineOptions(num_pages=32)
ASKED = {"model": "tiny", "prompt": "Once upon a time", "max_tokens": 2}
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
}


@pytest.fixture(scope="module")
def server():
    with running(tiny_subject(), OPTIONS, api_key="secret", allowed_origins=(PAGE, "https://chat.example")) as it:
        yield it


def cors_headers(answer) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control")}


def preflight(server, origin: str, **more: str):
    headers = PREFLIGHT | {"Origin": origin} | more
    return patient.request("OPTIONS", f"{server.url}/v1/chat/completions", headers=headers)


@pytest.mark.parametrize("origin", [PAGE, "https://chat.example"])
def test_a_preflight_request_needs_no_key(server, origin):
    got = preflight(server, origin)
    assert (got.status_code, got.content, got.headers["vary"]) == (204, b"", "Origin")
    assert cors_headers(got) == {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": "GET, HEAD, POST, DELETE",
        "access-control-allow-headers": PREFLIGHT["Access-Control-Request-Headers"],
        "access-control-max-age": "600",
    }


def test_a_preflight_request_from_the_internet_to_this_machine(server):
    got = preflight(server, PAGE, **{"Access-Control-Request-Private-Network": "true"})
    assert got.headers["access-control-allow-private-network"] == "true"


@pytest.mark.parametrize("origin", [STRANGER, "null", "https://localhost:3000", "http://localhost:3000.evil.example"])
def test_a_page_of_another_origin_reads_nothing(server, origin):
    got = preflight(server, origin)
    assert got.status_code == 403 and not cors_headers(got)
    assert f"start the server with --allowed-origin {origin}" in got.json()["error"]["message"]
    key = {"Authorization": "Bearer secret"}
    assert not cors_headers(patient.get(f"{server.url}/v1/models", headers=key | {"Origin": origin}))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_allowed_page_reads_answers_and_refusals(server, stream):
    page, key = {"Origin": PAGE}, {"Authorization": "Bearer secret"}
    url = f"{server.url}/v1/completions"
    answers = {
        200: patient.post(url, json=ASKED | {"stream": stream}, headers=page | key),
        400: patient.post(url, json=ASKED | {"max_tokens": 10**6}, headers=page | key),
        401: patient.post(url, json=ASKED, headers=page),
        404: patient.get(f"{server.url}/v2", headers=page | key),
        421: patient.get(f"{server.url}/v1/models", headers=page | key | {"Host": "evil.example"}),
    }
    for status, answer in answers.items():
        assert (answer.status_code, cors_headers(answer)) == (status, {"access-control-allow-origin": PAGE})


def test_every_origin_is_allowed_by_a_star():
    with running(tiny_subject(), OPTIONS, allowed_origins=("*",)) as server:
        assert preflight(server, STRANGER).headers["access-control-allow-origin"] == "*"
        got = patient.get(f"{server.url}/v1/models", headers={"Origin": STRANGER})
        assert cors_headers(got) == {"access-control-allow-origin": "*"} and "vary" not in got.headers


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/models", "/v1/models/tiny"])
def test_head_has_the_headers_of_get(server, path):
    headers = {"Authorization": "Bearer secret"}
    got, whole = (patient.request(method, f"{server.url}{path}", headers=headers) for method in ("HEAD", "GET"))
    assert (got.status_code, got.content) == (200, b"")
    assert got.headers["content-type"] == whole.headers["content-type"]


@pytest.mark.parametrize("text", [PAGE, "https://chat.example", "http://[::1]:80", "app://obsidian.md", "*"])
def test_origins_as_browsers_send_them(text):
    assert checked_origin(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "null", "localhost:3000", "http://a/", "http://a/b", "http://A", "http://a:x", "http://a:99999", "http://u@a",
     "http://", "http://a?b", "http://a#b", "http://a b", "http://a\n", "**", "http://*"],
)  # fmt: skip
def test_other_origins_are_refused(text):
    with pytest.raises(InputError, match="expected a scheme, a host and a port"):
        checked_origin(text)
