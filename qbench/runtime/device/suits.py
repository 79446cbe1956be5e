"""Caches that a device can have: the one place that refuses the others, for every command."""

from qbench.policies import CachePolicy
from qbench.run.cache_spec import DYNAMIC, FULL, PAGED, CacheSpec
from qbench.run.choices import IN_TORCH, TRITON
from quant.errors import InputError

LAYOUTS = (DYNAMIC, PAGED)


def check_device_cache(spec: CacheSpec, attention: str | None, device: str) -> None:
    """raises InputError or NotImplementedError for a layout or a policy that has no code on a device"""
    if spec.layout not in LAYOUTS:
        raise NotImplementedError(f"device {device}: got cache {spec}, expected {' or '.join(LAYOUTS)}")
    if spec.policy == FULL:
        return
    policy = spec.make_policy()
    why = why_not_on_device(policy)
    if why is not None:
        raise InputError(f"device {device}: policy {policy.name} {why}")
    if attention in IN_TORCH:
        raise InputError(f"policy {spec.policy} needs attention {TRITON} on device {device}; got {attention}")


def why_not_on_device(policy: CachePolicy) -> str | None:
    """The property of the policy that gpu_kernels lack; None: they run it"""
    if policy.needs_future:
        return "reads a text twice, which is done on the CPU alone; choose device cpu"
    if policy.retrieval:
        return "lets each query choose its pages, which is done on the CPU alone; choose device cpu, or snapkv"
    if policy.has_sinks:
        return "turns each query twice, by its places in the text and in the cache; choose device cpu, or a window"
    return None
