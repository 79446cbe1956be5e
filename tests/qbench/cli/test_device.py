"""`--device`: refusals before anything is loaded, and a model's quality by the kernels of a GPU."""

import json
import os
import subprocess
import sys
from unittest import mock

import pytest
import torch
from support.interpreted import INTERPRETER_IS_BROKEN, interpreting_process, json_of, rows_of

from gpu_kernels.proof.compile import ARCHITECTURES
from qbench.run.choices import GPUS

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA GPU")


@without_gpu
@pytest.mark.parametrize("command", [("eval",), ("bench",), ("eval", "--tasks", "ref_sums", "--limit", "1")])
def test_no_gpu(qbench, command):
    name, *options = command
    qbench(name, "ref:llama", "--device", "cuda", *options).fails_with("there is no CUDA device that torch can use")


@without_gpu
def test_a_suite_of_a_gpu_is_not_planned_without_one(qbench):
    qbench("sweep", "suites/gpu.yaml", "--dry-run").fails_with("device cuda: there is no CUDA device")


def test_a_gpu_without_tile_shapes_is_refused_before_anything_is_loaded(qbench, monkeypatch):
    assert tuple(10 * major + minor for major, minor in GPUS) == ARCHITECTURES
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 6))
    for command in ("eval", "bench"):
        told = "device cuda: got a GPU of compute capability 8.6, expected one of 8.0, 9.0, 10.0"
        qbench(command, "no-such-model", "--device", "cuda").fails_with(told)


def test_policies_of_the_cpu_are_refused_by_every_command(qbench):
    for command in (("eval",), ("bench",), ("eval", "--tasks", "ref_sums")):
        name, *options = command
        argv = (name, "rand:tiny", *options, "--device", "interpreter", "--policy", "sinks:2+8")
        with mock.patch.dict(os.environ, TRITON_INTERPRET="1"):
            qbench(*argv).fails_with("device interpreter: policy sinks:2+8 turns each query twice")


def test_options_that_a_device_lacks_are_refused(qbench):
    qbench("eval", "ref:llama", "--device", "tpu").fails_with("'tpu' is not one of 'cpu', 'cuda', 'interpreter'")
    qbench("eval", "ref:llama", "--device", "interpreter").fails_with("needs TRITON_INTERPRET=1 in the environment")
    qbench("eval", "ref:llama", "--device", "cuda", "--compute", "exact").fails_with("compute exact runs on the CPU")
    qbench("eval", "ref:llama", "--device", "cuda", "--save-logits", "x").fails_with(
        "--save-logits keeps MODEL as it is"
    )


@pytest.mark.skipif(INTERPRETER_IS_BROKEN, reason="the interpreter of this Triton cannot loop with this NumPy")
def test_quality_and_speed_of_a_device_are_reported_like_the_cpu():
    """1e-4 nats are 100 times the cost of float16 activations here, and a hundredth of a wrong kernel's."""
    interpreted = ("--device", "interpreter", "--json")
    text = ("--protocol", "windows-4", "--windows", "1", "--reference", "ref:llama")
    speed = ("--recipe", "rtn-w8a8", "-p", "0", "-n", "1", "-r", "1")
    with interpreting_process() as pool:  # in which Triton is loaded once for both
        rows = [("eval", "ref:llama", *text, *interpreted), ("bench", "rand:tiny", *speed, *interpreted)]
        quality, speeds = (pool.submit(json_of, words).result() for words in rows)
        policies = ("--policy", "full@2,h2o:budget=4@9,window:4@9", "-p", "0", "-n", "1", "-r", "1")
        full, h2o, window = pool.submit(rows_of, ("race", "rand:tiny", *policies, *interpreted)).result()
    assert quality["device"] == "interpreter" and quality["kernels"]["paged_prefill"] == "triton"
    assert set(quality["impls"]) == {"interpreter-f16[torch]"} and 0 <= quality["kld"]["mean"] < 1e-4
    assert speeds["impls"] == {"interpreter-w8a8_gemm[triton]": 14, "interpreter-f16[torch]": 1}
    assert speeds["tg_tok_s"] > 0 and set(speeds["roofline"]["tg_ops"]) == {"int8", "bf16"}
    assert speeds["kernels"]["decode"] == "eager" and "peak_device_bytes" not in speeds
    assert [row["depth"] for row in (full, h2o, window)] == [2, 9, 9] and full["ratio"] is None
    assert all(row["ratio_to"] == "policy full at depth 2" and row["ratio"]["tg"]["value"] > 0 for row in (h2o, window))
    assert h2o["kernels"]["decode"] == "eager" and h2o["policy"] == "h2o:budget=4" and h2o["kv_bytes_held"] > 0


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
@pytest.mark.parametrize("recipe", ["bf16", "rtn-w8a8", "rtn-w4g128", "q4_k_m"])
def test_a_gpu(recipe):
    """The text's divergence is that of bfloat16 plus the recipe's own, as the CPU finds it with exact products."""
    text = ("eval", "ref:llama", "--recipe", recipe, "--windows", "4", "--reference", "ref:llama")
    here, there = told(*text, device="cpu"), told(*text, device="cuda")
    assert there["kld"]["mean"] < 2 * here["kld"]["mean"] + 1e-3
    row = told("bench", "ref:llama", "--recipe", recipe, "-p", "64", "-n", "32", "-d", "64", "-r", "2", device="cuda")
    assert row["kernels"]["decode"] == "cuda graph" and row["kernels"]["keys_values"] == "bfloat16"
    assert row["peak_device_bytes"] > row["predicted_bytes"]["resident"] and 0 < row["roofline"]["tg"] < 1


def told(*words: str, device: str) -> dict:
    """The command's output with --json, in a process of its own."""
    command = [sys.executable, "-m", "qbench.cli.main", *words, "--device", device, "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout)
