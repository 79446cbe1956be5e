"""A worker that speaks the protocol and measures nothing, so that a sweep can be killed many times in seconds.

Its "artifact" is written in two halves with a pause between, and its logits as a half-written temporary, so that a
kill finds something to leave behind.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from qbench.harness.worker import die_with_parent, send, take_stdout

PAUSE_S = float(os.environ.get("QBENCH_STUB_PAUSE_S", "0.004"))


def reference(model: str, folder: str, **settings) -> dict:
    (Path(folder) / ".logits.npy.tmp-1").write_bytes(b"half")
    time.sleep(PAUSE_S)
    return {"cached": False}


def quantize(model: str, recipe: str, folder: str, **settings) -> dict:
    with open(Path(folder) / "model.gguf", "w") as file:
        file.write("first half ")
        file.flush()
        time.sleep(PAUSE_S)
        file.write(f"second half of {recipe}")
    return {"file": "model.gguf", "quantize_seconds": 1.5}


def measure(artifact: str, model: str, **settings) -> dict:
    content, start = Path(artifact).read_text(), time.time()
    time.sleep(PAUSE_S)
    if "crash" in content:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "refuse" in content:
        raise ValueError("this recipe cannot be measured")
    asked = {name: settings[name] for name in ("kv", "bench")} | {"isa": os.environ.get("QBENCH_ISA")}
    folder = Path(artifact).parents[2].name  # of the run, or of a node of a cluster
    return {"perplexity": 2.0, "content": content, "span": [start, time.time()], "folder": folder, "asked": asked}


def main() -> None:
    parent = os.getppid()
    channel = take_stdout()
    die_with_parent(parent)
    job = json.load(sys.stdin)
    send(channel, {"progress": [0, 1, "working"]})
    print("a library's chatter on stdout")
    try:
        message = {"result": globals()[job.pop("job")](**job)}
    except ValueError as error:
        message = {"error": str(error)}
    send(channel, message)


if __name__ == "__main__":
    main()
