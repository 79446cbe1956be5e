"""`qbench serve`: up from a command line, down by Ctrl-C, and refused options."""

import signal
import socket

import pytest
from support.served_process import served_process
from support.waits import WAIT_S

from qbench.cli.main import main

openai = pytest.importorskip("openai")


def test_serves_a_reference_model_until_it_is_interrupted(tmp_path):
    store = ("--preempt", "swap", "--swap-disk", "1MiB", "--kv-store", str(tmp_path / "store"))
    with served_process("ref:llama", "--kv", "kv-int8", *store, cwd=tmp_path) as (server, url):
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
        text = client.completions.create(model="ref:llama", prompt="Once upon", max_tokens=12, temperature=0)
        assert text.choices[0].text.strip()
        server.send_signal(signal.SIGINT)
        assert server.wait(WAIT_S) == 0
        assert server.stderr.read() == "ended\n"


@pytest.mark.parametrize(
    "arguments, message",
    [
        pytest.param(["rand:smollm2-135m"], "has no tokenizer", id="no tokenizer"),
        pytest.param(["ref:lama"], "did you mean 'ref:llama'?", id="no such model"),
        pytest.param(["ref:llama", "--kv-memory", "1B"], "memory_bytes is 1", id="memory"),
        pytest.param(["ref:llama", "--chat-template", "no/file"], "no/file: cannot read", id="template"),
        pytest.param(["ref:llama", "--allowed-origin", "http://a/"], "expected a scheme, a host and a", id="origin"),
        pytest.param(["ref:llama", "--recipe", "q4"], "unknown recipe", id="recipe"),
        pytest.param(
            ["ref:llama", "--kv", "kv-int4-kc", "--swap-disk", "1MiB"], "leave out --swap-disk", id="pages that stay"
        ),
        pytest.param(
            ["ref:llama", "--host", "256.0.0.1", "--api-key", "k"], "cannot listen on 256.0.0.1 port 0: ", id="address"
        ),
    ],
)
def test_models_that_cannot_be_served_are_refused_in_one_line(arguments, message, capsys):
    assert main(["serve", "--port", "0", *arguments]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert message in told[-1] and "Unknown error" not in told[-1]


def test_a_port_that_is_taken(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "ref:llama", "--port", str(port)]) == 2
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in capsys.readouterr().err
