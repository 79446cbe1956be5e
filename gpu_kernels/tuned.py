"""A Triton op whose tile shape comes from a table: how a call chooses the fastest and runs."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from gpu_kernels.launch import Launch, architecture, run_all

Config = TypeVar("Config")

CONFIGS = Path(__file__).parent / "configs"


def chosen(op: str, row: str, candidates: Sequence[Config], device: torch.device) -> Config:
    """The candidate that configs/ names for this row on this device's GPU, or the first if it does not name one.

    candidates  configs/ holds their str()
    """
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    name = _choices(gpu).get(op, {}).get(row)
    return next((config for config in candidates if str(config) == name), candidates[0])


def config_path(gpu: str) -> Path:
    return CONFIGS / f"{gpu.replace(' ', '_').replace('/', '_')}.json"


@cache
def _choices(gpu: str) -> dict[str, dict[str, str]]:
    path = config_path(gpu)
    return json.loads(path.read_text(encoding="utf-8"))["chosen"] if path.exists() else {}


@dataclass(frozen=True, slots=True)
class Tuned:
    """op        as in the dispatch table
    kernel    of its first launch: a JITFunction compiles, anything else is interpreted
    row_of    (operands, arch) -> (the row's name, its candidates), the default first
    launches  (operands, *results, config, arch) -> list[Launch]
    """

    op: str
    kernel: object
    row_of: Callable[[Any, int], tuple[str, Sequence[Any]]]
    launches: Callable[..., list[Launch]]

    def run(self, operands: Any, first: Tensor, *others: Tensor | None, config: Any = None) -> None:
        """Writes the results, in the configuration that was chosen for the row unless one is given.

        raises  RuntimeError on CPU tensors outside the interpreter; NotImplementedError on an unknown architecture
        """
        device = first.device
        arch = architecture(self.op, first, self.kernel)
        config = config or chosen(self.op, *self.row_of(operands, arch), device)
        run_all(self.launches(operands, first, *others, config, arch), device)
