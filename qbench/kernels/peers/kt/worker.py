"""A layer of kt-kernel's experts in a process of its own. Run by the Python that has kt-kernel; imports no module of
ours.

stdin   first a JSON object: cls, format, hidden_size, ffn_size, num_experts, num_chosen, max_tokens, threads, weights
        (a .npz of gate, up [D, I, K] and down [D, K, I]: float32, or GGUF blocks; D distinct experts, used in turn),
        then a JSON object for each run: calls (a .npz of x [M, K] float32, chosen and weights [calls, M, k]) and
        output, where the last call's [M, K] float32 goes
stdout  "=> " and a JSON object for each: {"variant": the build of kt-kernel that is loaded} once loaded, then
        {"seconds": of all calls of the run}
"""

import ctypes
import json
import os
import signal
import sys
import time

import kt_kernel  # pyright: ignore[reportMissingImports]  # in another environment alone
import numpy as np
import torch
from kt_kernel import kt_kernel_ext as kt  # pyright: ignore[reportMissingImports]  # in another environment alone

GGUF_TYPES = {"q4_k": "Q4_K", "q8_0": "Q8_0"}
PR_SET_PDEATHSIG = 1


def int4_groups(weight: torch.Tensor, group: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric codes + 8, eight to an int32, and a bfloat16 scale for each group"""
    grouped = weight.unflatten(-1, (-1, group))
    scale = (grouped.abs().amax(-1, keepdim=True) / 7).bfloat16()
    codes = (grouped / scale.float()).round().clamp(-8, 7).to(torch.int32) + 8
    packed = (codes.unflatten(-1, (-1, 8)) << (4 * torch.arange(8, dtype=torch.int32))).sum(-1, dtype=torch.int32)
    return packed.flatten(-2), scale.squeeze(-1)


def fp8_blocks(weight: torch.Tensor, size: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    """e4m3 codes and a float32 scale for each square of 128 x 128"""
    squares = weight.unflatten(-1, (-1, size)).unflatten(-3, (-1, size))
    scale = squares.abs().amax((-3, -1), keepdim=True) / 448
    codes = (squares / scale).to(torch.float8_e4m3fn)
    return codes.flatten(-2).flatten(-3, -2).view(torch.uint8), scale.squeeze((-3, -1))


def encoded(weight: torch.Tensor, fmt: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    if fmt == "int4_groups":
        return int4_groups(weight)
    if fmt == "fp8_blocks":
        return fp8_blocks(weight)
    return (weight.bfloat16() if fmt == "bf16" else weight), None


class Layer:
    def __init__(self, spec: dict) -> None:
        pool = kt.WorkerPoolConfig()
        pool.subpool_count, pool.subpool_numa_map, pool.subpool_thread_count = 1, [0], [spec["threads"]]
        self.cpu = kt.CPUInfer(pool)
        self.let_dispatcher_idle()
        sizes = (spec["num_experts"], spec["num_chosen"], spec["hidden_size"], spec["ffn_size"])
        self.num_chosen = spec["num_chosen"]
        config = kt.moe.MOEConfig(*sizes, 0)
        config.max_len, config.pool = max(spec["max_tokens"], 64), self.cpu.backend_
        self.kept = []
        for name, weight in np.load(spec["weights"]).items():
            data, scale = encoded(torch.from_numpy(weight), spec["format"])
            self.keep(config, f"{name}_proj", data, spec["num_experts"])
            if scale is not None:
                self.keep(config, f"{name}_scale", scale, spec["num_experts"])
            if spec["format"] in GGUF_TYPES:
                setattr(config, f"{name}_type", getattr(kt.kvcache.ggml_type, GGUF_TYPES[spec["format"]]))
        self.quantization(config, spec)
        self.moe = getattr(kt.moe, spec["cls"])(config)
        identity = torch.arange(spec["num_experts"])
        self.cpu.submit(self.moe.load_weights_task(identity.data_ptr()))
        self.cpu.sync()
        if spec["format"] not in GGUF_TYPES:  # those are used in place, the others are packed
            self.kept.clear()

    def keep(self, config, field: str, distinct: torch.Tensor, num_experts: int) -> None:
        """Every expert in memory of its own"""
        copies = distinct.repeat(num_experts // len(distinct), *[1] * (distinct.ndim - 1)).contiguous()
        self.kept.append(copies)
        setattr(config, field, copies.data_ptr())

    @staticmethod
    def quantization(config, spec: dict) -> None:
        if spec["format"] in ("int4_groups", "fp8_blocks"):
            bits, group = (4, 32) if spec["format"] == "int4_groups" else (8, 128)
            scheme = config.quant_config
            scheme.bits, scheme.group_size, scheme.zero_point = bits, group, False
        if spec["format"] in GGUF_TYPES:
            config.m_block, config.group_min_len, config.group_max_len = 32, 10, config.max_len
            config.hidden_type = kt.kvcache.ggml_type.BF16

    @staticmethod
    def let_dispatcher_idle() -> None:
        """Its newest thread only spins until work comes; with as many workers as cores it would take one's core."""
        if os.environ.get("LD_PRELOAD"):
            time.sleep(0.1)
            newest = max(int(thread) for thread in os.listdir("/proc/self/task"))
            os.sched_setscheduler(newest, os.SCHED_IDLE, os.sched_param(0))

    def __call__(self, chosen: torch.Tensor, weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        count = torch.tensor([len(x)], dtype=torch.int32)
        pointers = [tensor.data_ptr() for tensor in (chosen, weights, x, y)]
        self.cpu.submit(self.moe.forward_task(count.data_ptr(), self.num_chosen, *pointers, False))
        self.cpu.sync()
        return y


class Calls:
    """The calls of a file, and the addresses of their inputs and outputs."""

    def __init__(self, path: str) -> None:
        given = {name: torch.from_numpy(values) for name, values in np.load(path).items()}
        self.x = given["x"].bfloat16()
        self.routes = list(zip(given["chosen"], given["weights"], strict=True))
        self.y = torch.empty_like(self.x)

    def run(self, layer: Layer) -> float:
        chosen, weights = self.routes[0]
        layer(chosen[:1], weights[:1], self.x[:1])  # wakes its workers
        start = time.perf_counter()
        for chosen, weights in self.routes:
            self.y = layer(chosen, weights, self.x)
        return time.perf_counter() - start


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # it is stopped most of the time, and would stay so
    spec = json.loads(sys.stdin.readline())
    torch.set_num_threads(spec["threads"])
    layer = Layer(spec)
    print("=>", json.dumps({"variant": getattr(kt_kernel, "__cpu_variant__", "")}), flush=True)
    calls: dict[str, Calls] = {}
    for line in sys.stdin:
        question = json.loads(line)
        path = question["calls"]
        calls = calls if path in calls else {path: Calls(path)}
        seconds = calls[path].run(layer)
        np.save(question["output"], calls[path].y.float().numpy())
        print("=>", json.dumps({"seconds": seconds}), flush=True)


main()
