"""Tokens drawn on the device: the step that draws, and the inputs of the next step out of the tokens of the last.

A graph of the step has the settings of each sequence among its inputs, and a seed: the number of a seed at a position
needs no state. So no token visits the host before all are drawn.
"""

import torch
from torch import Tensor

from gpu_kernels.decode.llama import Llama, llama_logits
from gpu_kernels.decode.pages import Pages, step_inputs
from gpu_kernels.fused.sample import Operands as Sampling
from gpu_kernels.fused.sample import sample
from gpu_kernels.graphs import DecodeGraphs, Input, Step


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
