"""As much of kt-kernel as qbench/kernels/peers/kt/worker.py calls, for bf16 experts, in torch."""

import ctypes
from collections.abc import Callable
from math import prod
from types import SimpleNamespace

import torch
import torch.nn.functional as F


def view(address: int, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    memory = (ctypes.c_byte * (prod(shape) * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).reshape(shape)


class Config:
    def __init__(self, num_experts: int, num_chosen: int, hidden_size: int, ffn_size: int, _: int) -> None:
        self.num_experts, self.hidden_size, self.ffn_size = num_experts, hidden_size, ffn_size
        self.quant_config = SimpleNamespace()


class BF16:
    def __init__(self, config: Config) -> None:
        self.config = config

    def load_weights_task(self, identity: int) -> Callable[[], None]:
        experts, hidden, ffn = self.config.num_experts, self.config.hidden_size, self.config.ffn_size
        shapes = {"gate": (ffn, hidden), "up": (ffn, hidden), "down": (hidden, ffn)}

        def task() -> None:
            self.gate, self.up, self.down = (
                view(getattr(self.config, f"{name}_proj"), torch.bfloat16, experts, *shape).float()
                for name, shape in shapes.items()
            )

        return task

    def forward_task(
        self, count: int, num_chosen: int, chosen: int, weights: int, x: int, y: int, incremental: bool
    ) -> Callable[[], None]:
        def task() -> None:
            rows = int(view(count, torch.int32, 1))
            experts = view(chosen, torch.int64, rows, num_chosen)
            counts = view(weights, torch.float32, rows, num_chosen)
            out = view(y, torch.bfloat16, rows, self.config.hidden_size)
            for m, token in enumerate(view(x, torch.bfloat16, rows, self.config.hidden_size).float()):
                nets = [(F.silu(self.gate[e] @ token) * (self.up[e] @ token)) @ self.down[e].T for e in experts[m]]
                out[m] = counts[m] @ torch.stack(nets)

        return task


class CPUInfer:
    backend_ = None

    def __init__(self, pool: SimpleNamespace) -> None:
        assert pool.subpool_count == 1

    def submit(self, task: Callable[[], None]) -> None:
        task()

    def sync(self) -> None:
        pass


kt_kernel_ext = SimpleNamespace(
    WorkerPoolConfig=SimpleNamespace, CPUInfer=CPUInfer, moe=SimpleNamespace(MOEConfig=Config, AMXBF16_MOE=BF16)
)
