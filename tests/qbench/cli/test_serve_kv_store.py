"""`qbench serve --kv-store`, killed while it writes: later servers give the same answers."""

import random
import re
import signal
import subprocess
import sys
import time

import httpx
import pytest

PROMPTS = [
    f"Story {number}. " + f"Once upon a time there was a king who had {number} sons. " * 4 for number in range(12)
]


class Server:
    """A process of `qbench serve`."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "qbench.cli.main", "serve", "ref:llama", "--port", "0", "--threads", "1"]
        self.process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if (found := re.search(r"(http://127.0.0.1:\d+)/v1", line)) is not None:
                self.url = found[1]
                return
        raise RuntimeError("the server did not start")

    def answer(self, prompt: str) -> str:
        asked = {"model": "ref:llama", "prompt": prompt, "max_tokens": 8, "temperature": 0}
        return httpx.post(f"{self.url}/v1/completions", json=asked, timeout=60).json()["choices"][0]["text"]

    def metric(self, name: str) -> float:
        found = re.search(rf"^qbench_kv_store_{name}_total (\S+)", httpx.get(f"{self.url}/metrics").text, re.MULTILINE)
        assert found is not None
        return float(found[1])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.mark.exhaustive("each kill takes a new server; test_disk_store_processes.py kills processes that write blocks")
def test_a_server_that_is_killed_while_it_writes(tmp_path):
    server, draw, hits = Server(), random.Random(0), 0.0
    expected = {prompt: server.answer(prompt) for prompt in PROMPTS}
    server.kill()
    for _ in range(50):
        server = Server("--kv-store", str(tmp_path))
        try:
            end = time.monotonic() + draw.uniform(0.1, 0.6)
            while time.monotonic() < end:
                prompt = draw.choice(PROMPTS)
                assert server.answer(prompt) == expected[prompt]
            assert server.metric("corrupt_blocks") == server.metric("errors") == 0
            hits += server.metric("hits")
        finally:
            server.kill()
    assert hits > 0
