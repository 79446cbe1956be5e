"""Decode under a memory limit, qbench and another program in turn: `python tests/interop/compare_offload.py --help`.

Each turn is a fresh process in a group of the kernel's memory controller (cgroup version 1, root), page cache included.

llama.cpp    the GGUF file, mapped
accelerate   the folder of safetensors in bfloat16, by accelerate's disk offload of transformers' model
all          both in turn; MODEL is a folder, in which files of the same random weights are made first

`disk_s` is the time of a step if nothing but the disk took time: bytes of weights that do not fit, over its bandwidth
for direct reads. So `most_times_as_fast` is the largest ratio that this disk and this limit allow.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from plan_offload import qbench

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.memory_limit import NEEDS, Limited, can_limit, run_within

from qbench.cli.keep_path import require_clean_tree
from qbench.measure.host.conditions import busy_share
from qbench.measure.host.machine import available_cores
from qbench.measure.records.kept_row import keep_row
from qbench.words.written import parse_bytes

SHARE = 0.97  # of the limit for qbench's own --memory: the shell that starts a process shares its group

QBENCH = """
import json, sys, time, torch
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.sources import open_source
spec, memory, steps, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
model = load_model(open_source(spec), RunOptions(memory_bytes=memory))
cache = model.new_cache(batch, steps + 2)
token, taken = torch.ones(batch, 1, dtype=torch.int64), []
for _ in range(steps + 1):
    start = time.perf_counter()
    token = model(token, cache)[:, -1:].argmax(-1)
    taken.append(time.perf_counter() - start)
streamed, bytes_s = model.weights.shares.streamed_bytes, 0.0
if streamed:
    bytes_s = model.weights.disk_bandwidth(1 << 30)
print(json.dumps({"read_bytes": streamed, "disk_bytes_s": bytes_s}))
print(json.dumps(taken[1:]))
"""

LLAMA_CPP = """
import json, os, sys, time
import llama_cpp
spec, steps = sys.argv[1], int(sys.argv[3])
defaults = llama_cpp.llama_cpp.llama_model_default_params
def mapped():
    params = defaults()
    params.use_extra_bufts = False  # weights that are packed again would be copies in memory, and not the mapped file
    return params
llama_cpp.llama_cpp.llama_model_default_params = mapped
threads = len(os.sched_getaffinity(0))
model = llama_cpp.Llama(spec, n_ctx=64, use_mmap=True, n_threads=threads, n_threads_batch=threads, verbose=False)
taken = []
for position in range(steps + 1):
    start = time.perf_counter()
    model.eval([1])
    taken.append(time.perf_counter() - start)
print(json.dumps(taken[1:]))
"""

ACCELERATE = """
import json, sys, time
import torch
from accelerate import init_empty_weights, load_checkpoint_and_dispatch
from transformers import AutoConfig, AutoModelForCausalLM
spec, folder, steps, batch = sys.argv[1], sys.argv[5], int(sys.argv[3]), int(sys.argv[4])
config = AutoConfig.from_pretrained(spec)
with init_empty_weights():
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
model.tie_weights()
devices = {"model.embed_tokens": "disk", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "disk"}
if config.tie_word_embeddings:  # the head is the embedding, and the files lack a weight of its name
    devices |= {"model.embed_tokens": "cpu", "lm_head": "cpu"}
devices |= {f"model.layers.{layer}": "disk" for layer in range(config.num_hidden_layers)}
with torch.inference_mode():
    model = load_checkpoint_and_dispatch(
        model, spec, device_map=devices, offload_folder=folder, dtype=torch.bfloat16, offload_buffers=True
    )
    token, past, taken = torch.ones(batch, 1, dtype=torch.int64), None, []
    for _ in range(steps + 1):
        start = time.perf_counter()
        found = model(input_ids=token, past_key_values=past, use_cache=True)
        token, past = found.logits[:, -1:].argmax(-1), found.past_key_values
        taken.append(time.perf_counter() - start)
print(json.dumps(taken[1:]))
"""

PEERS = {"llama.cpp": LLAMA_CPP, "accelerate": ACCELERATE}
KEPT = ("peer", "qbench_s", "peer_s", "disk_s", "read_bytes", "times_as_fast", "most_times_as_fast")
TARGETS = {"llama.cpp": 1, "accelerate": 5}  # times as fast, at least


def forget(model: Path) -> None:
    """Take the model out of the page cache: the limit does not count pages that another group brought there."""
    for path in [model] if model.is_file() else model.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def run(code: str, arguments: list[str], limit_bytes: int) -> tuple[float, Limited]:
    """Median seconds of a step in a fresh process under the limit; its last line has those of all steps."""
    forget(Path(arguments[0]))
    done = run_within(limit_bytes, [sys.executable, "-c", code, *arguments], timeout_s=600)
    if done.returncode:
        raise SystemExit(f"exit status {done.returncode}: {done.stderr[-2000:]}")
    return median(json.loads(done.stdout.splitlines()[-1])), done


def made(folder: Path, shape: str) -> dict[str, str]:
    """The files of each program: weights of this shape in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {"llama.cpp": f"{shape}-bf16.gguf", "accelerate": f"{shape}-bf16"}
    for name in names.values():
        if not (folder / name).exists():
            qbench(folder, "quantize", f"rand:{shape}", "--recipe", "bf16", "-o", name)
    return {peer: str(folder / name) for peer, name in names.items()}


def compare(peer: str, model: str, asked: argparse.Namespace) -> None:
    """Prints the seconds of each turn on stderr, and one object on stdout."""
    limit, busy = parse_bytes(asked.memory), busy_share()
    own, theirs, peaks, disk_s = [], [], [], []
    for number in range(asked.rounds + 1):
        with tempfile.TemporaryDirectory(dir=Path(model).parent) as folder:
            arguments = [model, str(int(limit * SHARE)), str(asked.steps), str(asked.batch), folder]
            seconds, within = run(QBENCH, arguments, limit)
            if number == 0:
                continue  # it wrote the file of streamed weights
            peer_seconds, peer_within = run(PEERS[peer], arguments, limit)
        disk = json.loads(within.stdout.splitlines()[-2])
        disk_s.append(disk["read_bytes"] / (disk["disk_bytes_s"] or 1))
        own.append(seconds)
        theirs.append(peer_seconds)
        peaks.append((within.peak_bytes, peer_within.peak_bytes))
        print(f"qbench {seconds:.3f} s per step, {peer} {peer_seconds:.3f} s", file=sys.stderr)
    ratio = median(peer_s / own_s for own_s, peer_s in zip(own, theirs, strict=True))
    found = {"qbench_s": own, "peer": peer, "peer_s": theirs, "times_as_fast": ratio, "target": TARGETS[peer]}
    found |= {"read_bytes": disk["read_bytes"], "disk_s": disk_s}
    if all(disk_s):
        found["most_times_as_fast"] = median(peer_s / least for least, peer_s in zip(disk_s, theirs, strict=True))
    if asked.keep:
        case = {"model": Path(model).name, "memory_bytes": limit, "batch": asked.batch, "threads": available_cores()}
        row = case | {name: found.get(name) for name in KEPT} | {"busy_before": busy}
        keep_row(asked.keep, row, {"kind": "peer"}, [*case, "peer"])
    print(json.dumps(found | {"limit_bytes": limit, "peak_bytes": peaks}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=[*PEERS, "all"])
    parser.add_argument("model")
    parser.add_argument("--memory", required=True, help="limit of each process, e.g. 2GiB")
    parser.add_argument("--shape", default="llama-1.1b", help="of the weights that `all` makes, as in rand:SHAPE")
    parser.add_argument("--steps", type=int, default=5, help="decode steps per turn")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each program")
    parser.add_argument("--batch", type=int, default=1, help="sequences; llama.cpp runs one")
    parser.add_argument("--keep", help="append the rows as records to this file or folder")
    asked = parser.parse_args()
    if asked.keep:
        require_clean_tree(Path(asked.keep))
    if not can_limit():
        raise SystemExit(f"this system cannot limit memory: {NEEDS}")
    is_all = asked.peer == "all"
    for peer, model in (made(Path(asked.model), asked.shape) if is_all else {asked.peer: asked.model}).items():
        compare(peer, model, asked)


if __name__ == "__main__":
    main()
