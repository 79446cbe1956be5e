"""`python -m support.soak`: hostile requests among normal ones; no wrong answer, no leaked page, no memory that grows.

Run in tests/. Prints one JSON line; exit status 1 if a rule is broken.
"""

import argparse
import asyncio
import contextlib
import json
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
from support.metrics import metrics_of

NORMAL = {"model": "ref:llama", "temperature": 0, "max_tokens": 8}
PROMPTS = [f"Once upon a time there was {count} of them" for count in range(20)]
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
FAULTS = ("num_wrong", "leaked_pages", "exit_status", "tracebacks")
MOST_GROWTH, MOST_STOP_S = 0.05, 5.0
STARTED = re.compile(r" at (http://[^/]+)/v1 \(Ctrl-C ends\)")
RAISED = re.compile(r"^[ +|]*Traceback .*\n(?:[ +|].*\n)*(\S.*)", re.MULTILINE)  # the last line of each
OPTIONS = ("--port", "0", "--kv-memory", "32MiB", "--request-timeout", "20", "--max-queue", "300")


@dataclass(slots=True)
class Soaked:
    """statuses  of the answers to hostile requests; 0: no answer came
    wrong     normal requests whose text was another one, or that failed
    num_late  normal requests that reached the server's time limit, as a slow machine lets them
    """

    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    num_normal: int = 0
    num_late: int = 0


@contextlib.contextmanager
def server(log: Path):
    """The process and its address; its messages go to the file."""
    command = [sys.executable, "-m", "qbench.cli.main", "serve", "ref:llama", "--compute", "exact", *OPTIONS]
    with log.open("w") as messages:
        process = subprocess.Popen(command, stderr=messages)
        try:
            while (found := STARTED.search(log.read_text())) is None:
                if process.poll() is not None:
                    raise RuntimeError(f"the server did not start: {log.read_text()}")
                time.sleep(0.1)
            yield process, found[1]
        finally:
            process.kill()
            process.wait()


def hostile_body(rng: random.Random) -> bytes:
    """One of many impossible requests."""
    good = NORMAL | {"prompt": "x"}
    bodies = (
        lambda: good | {"prompt": "y" * rng.randrange(5_000, 900_000)},
        lambda: good | {"prompt": " " * 900_000},
        lambda: good | {"prompt": [rng.randrange(-5, 10**9) for _ in range(rng.randrange(1, 5000))]},
        lambda: good | {"max_tokens": 10 ** rng.randrange(3, 9), "n": rng.randrange(1, 128)},
        lambda: good | {"repetition_penalty": 1e-300},
        lambda: good | {"temperature": rng.choice([1e-310, 100, -1, "hot", None])},
        lambda: good | {"stop": ["z" * 2000] * rng.randrange(1, 20)},
        lambda: good | {"logprobs": rng.choice([20, 21, -1, True])},
        lambda: good | {"cache_salt": "s" * rng.randrange(1, 10_000)},
        lambda: good | {f"field{rng.random()}": 1 for _ in range(rng.choice([1, 30_000]))},
        lambda: good | {"logit_bias": {str(token): 1e9 for token in range(rng.choice([1, 60_000]))}},
        lambda: good | {"prompt": [[]] * rng.randrange(1, 300_000)},
        lambda: {"model": "ref:llama", "messages": [{"role": "user", "content": "<s></s>" * rng.randrange(1, 5000)}]},
    )
    text = json.dumps(rng.choice(bodies)()).encode()
    way = rng.random()
    if way < 0.1:
        return text[: rng.randrange(len(text))]
    if way < 0.2:
        return b'{"model": "ref:llama", "prompt": ' + b"[" * rng.randrange(1, 100_000)
    if way < 0.25:
        return b"0" * (2 << 20)
    return text


async def hostile(client: httpx.AsyncClient, url: str, rng: random.Random, found: Soaked) -> None:
    way = rng.random()
    if way < 0.15:
        await broken(url, rng)
        found.statuses[0] += 1
        return
    path = rng.choice(["completions", "completions", "chat/completions", "nowhere"])
    headers = {"content-type": "application/json"} | ({"host": "evil.example"} if rng.random() < 0.1 else {})
    timeout = rng.choice([0.01, 0.1, 30])  # clients that leave
    try:
        answer = await client.post(f"{url}/v1/{path}", content=hostile_body(rng), headers=headers, timeout=timeout)
        found.statuses[answer.status_code] += 1
        if answer.status_code >= 400 and set(answer.json()["error"]) != {"message", "type", "param", "code"}:
            found.wrong.append(f"{answer.status_code}: {answer.text[:100]}")
    except httpx.HTTPError:
        found.statuses[0] += 1


async def broken(url: str, rng: random.Random) -> None:
    """A connection that ends in the middle of something."""
    host, _, port = url.removeprefix("http://").partition(":")
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection(host, int(port))
        whole = HEAD + b"Content-Length: 60\r\n\r\n" + json.dumps(NORMAL | {"prompt": "x", "stream": True}).encode()
        writer.write(rng.choice([rng.randbytes(200), whole[: rng.randrange(len(whole))], whole]))
        await asyncio.sleep(rng.choice([0, 0.05]))
        writer.close()


async def normal(client: httpx.AsyncClient, url: str, expected: dict[str, str], rng: random.Random, found: Soaked):
    prompt = rng.choice(PROMPTS)
    found.num_normal += 1
    try:
        answer = await client.post(f"{url}/v1/completions", json=NORMAL | {"prompt": prompt}, timeout=120)
    except httpx.HTTPError as error:
        found.wrong.append(f"{prompt!r}: {type(error).__name__}")
        return
    if answer.status_code == 429:
        return  # it may come again
    if answer.status_code == 503 and "took longer than" in answer.text:
        found.num_late += 1
        return
    text = answer.json()["choices"][0]["text"] if answer.status_code == 200 else f"status {answer.status_code}"
    if text != expected[prompt]:
        found.wrong.append(f"{prompt!r}: {text!r}")


async def soak(url: str, num_hostile: int, num_clients: int, seed: int, expected: dict[str, str]) -> Soaked:
    """Normal clients ask all the time while the hostile requests are sent, 50 at once."""
    found, rng, is_over = Soaked(), random.Random(seed), asyncio.Event()
    # Clients give an idle connection up before the server does, after 5 s, or a request could meet its end.
    limits = httpx.Limits(max_connections=None, keepalive_expiry=1)
    turns = asyncio.Semaphore(50)

    async def normal_client(number: int) -> None:
        own = random.Random(seed + number)
        async with httpx.AsyncClient(limits=limits) as client:
            while not is_over.is_set():
                await normal(client, url, expected, own, found)

    async with httpx.AsyncClient(limits=limits) as client:

        async def one(number: int) -> None:
            async with turns:
                await hostile(client, url, random.Random(seed * 1_000_003 + number), found)

        clients = [asyncio.create_task(normal_client(number)) for number in range(num_clients)]
        await asyncio.gather(*(one(rng.randrange(1 << 40)) for _ in range(num_hostile)))
        is_over.set()
        await asyncio.gather(*clients)
    return found


def settled(url: str) -> dict[str, float]:
    """The metrics once no request runs or waits."""
    for _ in range(600):
        found = metrics_of(url)
        if found["qbench_requests_running"] == found["qbench_requests_queued"] == 0:
            return found
        time.sleep(0.1)
    return found


def ended_cpu_s() -> float:
    """CPU time of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def stopped_under_load(url: str, process: subprocess.Popen, num_clients: int) -> tuple[float, float]:
    """Seconds until the server has ended after Ctrl-C, while streams run and wait; and its CPU time from then on."""
    body = NORMAL | {"prompt": "x", "max_tokens": 900, "stream": True}
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None), timeout=60) as client:
        streams = [asyncio.create_task(client.post(f"{url}/v1/completions", json=body)) for _ in range(num_clients)]
        await asyncio.sleep(0.5)
        spent, others_cpu_s = psutil.Process(process.pid).cpu_times(), ended_cpu_s()
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        await asyncio.to_thread(process.wait, 60)
        seconds = time.monotonic() - began
        await asyncio.gather(*streams, return_exceptions=True)
    return seconds, ended_cpu_s() - others_cpu_s - spent.user - spent.system


def answers(url: str) -> dict[str, str]:
    """The text of each prompt, asked alone."""
    bodies = (NORMAL | {"prompt": prompt} for prompt in PROMPTS)
    found = (httpx.post(f"{url}/v1/completions", json=body, timeout=60).json() for body in bodies)
    return {prompt: one["choices"][0]["text"] for prompt, one in zip(PROMPTS, found, strict=True)}


def fill_pages(url: str) -> None:
    """Ask different prompts until each page has been used: only then is all memory of the cache resident."""
    for number in range(10_000):
        tokens = [3 + (number + 7 * at * at) % 200 for at in range(900)]
        httpx.post(f"{url}/v1/completions", json=NORMAL | {"prompt": tokens, "max_tokens": 1}, timeout=60)
        metrics = metrics_of(url)
        if metrics["qbench_prefix_pages"] >= 0.95 * metrics["qbench_pages"]:
            return
    raise RuntimeError("pages of the cache stay unused")


def run(num_hostile: int, num_clients: int, seed: int, log: Path) -> dict:
    """The row that `main` prints. log: gets the server's messages"""
    with server(log) as (process, url):
        expected, memory = answers(url), psutil.Process(process.pid).memory_info
        fill_pages(url)
        asyncio.run(soak(url, max(num_hostile // 5, 200), num_clients, seed, expected))  # until memory is warm
        settled(url)
        before = memory().rss
        found = asyncio.run(soak(url, num_hostile, num_clients, seed + 1, expected))
        metrics, growth = settled(url), memory().rss / before - 1
        stop_s, stop_cpu_s = asyncio.run(stopped_under_load(url, process, num_clients))
        messages = log.read_text()
        return {
            "hostile": sum(found.statuses.values()),
            "statuses": dict(sorted(found.statuses.items())),
            "normal": found.num_normal,
            "num_late": found.num_late,
            "num_wrong": len(found.wrong),
            "wrong": found.wrong[:5],
            "leaked_pages": metrics["qbench_pages"] - metrics["qbench_pages_free"],
            "memory_growth": growth,
            "stop_s": stop_s,
            "stop_cpu_s": stop_cpu_s,
            "exit_status": process.returncode,
            "tracebacks": messages.count("Traceback"),
            "raised": sorted(set(RAISED.findall(messages)))[:5],
        }


def broken_rules(row: dict) -> dict:
    """Parts of the row of a run that break a rule. Late answers and a slow stop depend on the machine: see `main`."""
    broken = {name: row[name] for name in FAULTS if row[name]}
    if row["memory_growth"] > MOST_GROWTH:
        broken["memory_growth"] = row["memory_growth"]
    if 500 in row["statuses"]:
        broken["statuses"] = row["statuses"]
    return broken


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hostile", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, help="file for the messages of the server")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        log = options.log or Path(folder, "log")
        row = run(options.hostile, options.clients, options.seed, log)
    print(json.dumps(row))
    return 1 if broken_rules(row) or row["num_late"] or row["stop_s"] > MOST_STOP_S else 0


if __name__ == "__main__":
    sys.exit(main())
