"""Which of an op's candidate configurations runs on a GPU: the fastest that was measured there, as kept in configs/."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

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
