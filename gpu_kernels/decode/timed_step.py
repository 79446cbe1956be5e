"""A decode step of a whole model from a CUDA graph, and the same step launched kernel by kernel or with draws."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial

import torch
from torch import Tensor

from gpu_kernels.decode.llama import LLAMA_3_2_1B, Llama, LlamaShape, llama_logits, llama_step, random_llama
from gpu_kernels.decode.pages import Pages, step_inputs, zero_pages
from gpu_kernels.fused.sample import Operands as Sampling
from gpu_kernels.fused.sample import sample
from gpu_kernels.graphs import Capture, DecodeGraphs, Input, Step, eagerly
from gpu_kernels.proof import timing

OP = "llama_decode"
BATCHES = (1, 16)
CONTEXT, PAGE_SIZE = 1024, 16
REPETITIONS, STEPS = 20, 10  # samples, and steps per sample: some 20 ms, much more than the host's start
NAME = "llama-3.2-1b"
OWN = "graph, with dense_gemv for torch's products"
DRAWN = "graph, drawn by temperature, top-k, top-p and min-p"


def decode_rows(device: str, *, shape: LlamaShape = LLAMA_3_2_1B, captured: Capture | None = None) -> list[dict]:
    """Records of every batch size, captured and eager; weights are random, so it is their speed alone.

    captured  how the faster of the two is captured; default a CUDA graph
    raises    RuntimeError if the two give unlike tokens
    """
    pages = CONTEXT // PAGE_SIZE
    how = {"dtype": torch.bfloat16, "device": device}
    model = random_llama(shape, positions=CONTEXT, **how)
    held = zero_pages(shape.num_layers, max(BATCHES) * pages, PAGE_SIZE, shape.num_kv_heads, shape.head_dim, **how)
    found = []
    for batch in BATCHES:
        given = _inputs(batch, pages, device)
        ways = {
            how: DecodeGraphs(llama_step(model, held), step_inputs(pages), [batch], device=device, capture=capture)
            for how, capture in (("graph", captured), ("eager", eagerly))
        }
        first, second = (way(given).clone() for way in ways.values())
        if not torch.equal(first, second):
            raise RuntimeError(f"{OP}: got other tokens from the graph than from the eager step at a batch of {batch}")
        runs = {how: partial(_steps, way, given) for how, way in ways.items()}
        drawing = DecodeGraphs(
            drawing_step(model, held), drawing_inputs(pages), [batch], device=device, capture=captured
        )
        if batch == 1:
            own = random_llama(shape, positions=CONTEXT, has_gemv=True, **how)
            graphs = DecodeGraphs(llama_step(own, held), step_inputs(pages), [1], device=device, capture=captured)
            runs[OWN] = partial(_steps, graphs, given)
        found += _rows(model, batch, runs | {DRAWN: partial(_steps, drawing, given | _settings(batch, device))})
    return found


def _inputs(batch: int, pages: int, device: str) -> dict[str, Tensor]:
    """The last token of CONTEXT in pages of its own, in no order."""
    order = torch.randperm(batch * pages, generator=torch.Generator().manual_seed(0)).reshape(batch, pages)
    given = {
        "token": torch.arange(batch),
        "position": torch.full((batch,), CONTEXT - 1),
        "slot": order[:, -1] * PAGE_SIZE + PAGE_SIZE - 1,
        "block_table": order.int(),
        "length": torch.full((batch,), CONTEXT, dtype=torch.int32),
    }
    return {name: value.to(device) for name, value in given.items()}


def _settings(batch: int, device: str) -> dict[str, Tensor]:
    """Those of a usual chat."""
    fixed = {"temperature": 0.8, "top_p": 0.95, "min_p": 0.05}
    found = {name: torch.full((batch,), value, device=device) for name, value in fixed.items()}
    seeds = torch.arange(batch, device=device)
    return found | {"top_k": torch.full_like(seeds, 40, dtype=torch.int32), "seed": seeds}


def _steps(graphs: DecodeGraphs, given: dict[str, Tensor]) -> None:
    for _ in range(STEPS):
        graphs(given)


def _rows(model: Llama, batch: int, ways: dict[str, Callable[[], None]]) -> list[dict]:
    samples: dict[str, list[float]] = {how: [] for how in ways}
    for repetition in range(-1, REPETITIONS):  # one to warm up
        for how, run in ways.items():
            us = timing.event_time(run) / STEPS
            if repetition >= 0:
                samples[how].append(us)
    shape = model.shape
    # Weights, and the keys and values of the context; both in 16 bits.
    num_bytes = model.step_bytes + 2 * 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * CONTEXT * batch
    about = {
        "op": OP,
        "label": f"{NAME} B={batch} context={CONTEXT} bfloat16",
        "sizes": asdict(shape) | {"B": batch, "context": CONTEXT},
        "row": "",
        "num_bytes": num_bytes,
        "ops": model.step_bytes * batch,  # a multiply-add for each weight of 2 bytes
        "bound": "bandwidth",
    }
    return [about | {"impl": how, "us": timing.median(taken), "samples_us": taken} for how, taken in samples.items()]


def drawing_inputs(max_pages: int) -> dict[str, Input]:
    """Those of `step_inputs`, and how each sequence draws; padding is greedy."""
    settings = {
        "temperature": Input((), torch.float32, 0.0),
        "top_k": Input((), torch.int32, 0),
        "top_p": Input((), torch.float32, 1.0),
        "min_p": Input((), torch.float32, 0.0),
        "seed": Input((), torch.int64, 0),
    }
    return step_inputs(max_pages) | settings


def drawing_step(model: Llama, pages: Pages) -> Step:
    """The next token [B] int64 of every sequence, drawn as `drawing_inputs` says."""

    def step(rows: dict[str, Tensor]) -> Tensor:
        logits = llama_logits(model, pages, rows)
        settings = (rows[name] for name in ("temperature", "top_k", "top_p", "min_p", "seed", "position"))
        return sample(Sampling(logits, None, *settings))[0]

    return step


def next_rows(rows: dict[str, Tensor], token: Tensor, page_size: int) -> dict[str, Tensor]:
    """The inputs of the step after the one of `rows`, which gave these tokens [B]; its pages must be in the table."""
    position = rows["position"] + 1
    page = rows["block_table"].gather(1, (position // page_size)[:, None])[:, 0]
    slot = page.long() * page_size + position % page_size
    return rows | {"token": token, "position": position, "slot": slot, "length": rows["length"] + 1}


def draw_tokens(graphs: DecodeGraphs, rows: dict[str, Tensor], num_tokens: int, page_size: int) -> Tensor:
    """[B, num_tokens] on the device, each drawn by a replay of the step.

    graphs  of `drawing_step`
    rows    inputs of the first step, on the device
    """
    found = []
    for number in range(num_tokens):
        token = graphs(rows).clone()  # the next replay overwrites it
        found.append(token)
        if number + 1 < num_tokens:
            rows = next_rows(rows, token, page_size)
    return torch.stack(found, 1)
