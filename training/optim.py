"""Muon for the hidden matrices, AdamW for embeddings and norms."""

from collections.abc import Callable
from typing import overload

import torch
from torch import Tensor

# Quintic Newton-Schulz coefficients that maximise the slope at zero (Jordan et al. 2024, "Muon").
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
# RMS of an AdamW update in practice; scaling Muon's to it lets both share one learning rate (arXiv:2502.16982, eq. 4).
ADAMW_UPDATE_RMS = 0.2
# A row of these belongs to one token or one expert: evening out singular values across rows has no meaning there.
TABLES = ("embed_tokens.", "lm_head.", "mlp.gate.")


def orthogonalize(matrix: Tensor, steps: int = 5) -> Tensor:
    """The nearest semi-orthogonal matrix, roughly: singular values land in about [0.7, 1.2].

    matrix   [N, K] float
    returns  [N, K] bfloat16
    source   Jordan et al. 2024, "Muon: an optimizer for hidden layers", Newton-Schulz iteration
    """
    a, b, c = NEWTON_SCHULZ
    x = matrix.bfloat16()
    wide = (x if x.shape[0] <= x.shape[1] else x.T).contiguous()
    wide = wide / (wide.norm() + 1e-7)
    for _ in range(steps):
        gram = wide @ wide.T  # [min, min]
        polynomial = torch.addmm(gram, gram, gram, beta=b, alpha=c)
        wide = torch.addmm(wide, polynomial, wide, beta=a)
    return wide if x.shape[0] <= x.shape[1] else wide.T


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised per matrix, with decoupled weight decay.

    source   Jordan et al. 2024; weight decay and update scale: Liu et al. 2025, arXiv:2502.16982
    """

    def __init__(self, params, lr: float, momentum: float = 0.95, weight_decay: float = 0.1):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = closure() if closure else None
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:  # an expert that no token chose
                    continue
                state = self.state[weight]
                velocity = state.setdefault("velocity", torch.zeros_like(weight))
                velocity.lerp_(weight.grad, 1 - group["momentum"])
                update = orthogonalize(weight.grad.lerp(velocity, group["momentum"]))  # Nesterov
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(update, alpha=-group["lr"] * ADAMW_UPDATE_RMS * max(weight.shape) ** 0.5)
        return loss


def make_optimizers(model: torch.nn.Module, lr: float, weight_decay: float) -> list[torch.optim.Optimizer]:
    """Muon over the layers' matrices, AdamW over tables of tokens or experts (decayed) and the norms (not)."""
    matrices, tables, vectors = [], [], []
    for name, weight in model.named_parameters():
        is_table = any(part in name for part in TABLES)
        kind = vectors if weight.ndim == 1 else tables if is_table else matrices
        kind.append(weight)
    adamw_groups = [{"params": tables, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [
        Muon(matrices, lr=lr, weight_decay=weight_decay),
        torch.optim.AdamW(adamw_groups, lr=lr, betas=(0.9, 0.95), fused=True),
    ]
