"""The code that computes attention, by the names that users give.

textbook  product, softmax, product in torch; the scores of a whole forward pass are in memory at once
sdpa      torch.nn.functional.scaled_dot_product_attention
kernel    cpu_kernels, on the CPU alone
triton    gpu_kernels, on a device alone

Nobody has to choose: the CPU then takes its kernels for models that they can run and torch for others, and a device
takes gpu_kernels. A choice holds for every layer, or is refused.
"""

from qbench.cache_spec import DENSE, FULL, NONE, CacheSpec
from qbench.devices import CPU
from qbench.nearest import nearest
from quant.errors import InputError

ATTENTIONS = TEXTBOOK, SDPA, KERNEL, TRITON = "textbook", "sdpa", "kernel", "triton"
IN_TORCH = (TEXTBOOK, SDPA)


def check_attention_name(name: str) -> None:
    """raises InputError if the name is not one of ATTENTIONS"""
    if name not in ATTENTIONS:
        raise InputError(f"unknown attention {name!r}; known: {', '.join(ATTENTIONS)}{nearest(name, ATTENTIONS)}")


def check_attention(name: str | None, device: str, spec: CacheSpec) -> None:
    """raises InputError for an unknown name, and for one that does not go with the device or the cache; None: any"""
    if spec.prefill != DENSE and device != CPU:
        raise InputError(f"prefill pattern {spec.prefill} is on the CPU alone; got device {device}")
    if name is None:
        return
    check_attention_name(name)
    if name == (TRITON if device == CPU else KERNEL):
        here = (*IN_TORCH, KERNEL if device == CPU else TRITON)
        raise InputError(f"attention {name} is not on device {device}; choose one of {', '.join(here)}")
    if name == KERNEL and spec.layout == NONE:
        raise InputError(f"cache {NONE} attends in torch; choose attention {' or '.join(IN_TORCH)}, or another cache")
    if name in IN_TORCH and spec.policy != FULL:
        _check_policy(name, spec)
    if name in IN_TORCH and spec.prefill != DENSE:
        raise InputError(f"prefill pattern {spec.prefill} goes with attention {KERNEL}; got attention {name}")


def _check_policy(name: str, spec: CacheSpec) -> None:
    """The part of `check_attention` for attention in torch."""
    policy = spec.make_policy()
    if policy.has_sinks:
        raise InputError(
            f"policy {spec.policy} rotates each query twice, which attention {name} does not; choose {KERNEL}"
        )
    if name == SDPA and policy.observes is not None:
        raise InputError(
            f"policy {spec.policy} reads attention weights, which {SDPA} does not return; choose {TEXTBOOK} or {KERNEL}"
        )
