"""A worker that speaks the protocol and measures nothing, so that a sweep can be killed many times in seconds.

Its "artifact" is written in two halves with a pause between, and its logits as a half-written temporary, so that a
kill finds something to leave behind.
"""

import os
import signal
import sys
import time
from pathlib import Path

from qbench.sweeps.worker import serve
from quant.errors import InputError

PAUSE_S = float(os.environ.get("QBENCH_STUB_PAUSE_S", "0.004"))


def reference(model: str, folder: str, **settings) -> dict:
    (Path(folder) / ".logits.npy.tmp-1").write_bytes(b"half")
    time.sleep(PAUSE_S)
    return {"kept": []}


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
        raise InputError("this recipe cannot be measured")
    options, work = settings["options"], settings["work"]
    asked = {"kv": options["kv_format"], "bench": work["speed"], "isa": os.environ.get("QBENCH_ISA")}
    folder = Path(artifact).parents[2].name  # of the run, or of a node of a cluster
    found = {"perplexity": 2.0, "content": content, "span": [start, time.time()], "folder": folder, "asked": asked}
    return found | {"worker": os.getppid()}


def chatty(job):
    """The job, which reports its progress and has a library that prints."""

    def run(progress, **arguments) -> dict:
        progress(0, 1, "working")
        print("a library's chatter on stdout")
        return job(**arguments)

    return run


if __name__ == "__main__":
    sys.exit(serve({job.__name__: chatty(job) for job in (reference, quantize, measure)}))
