"""`CacheSpec`: the layout, the policy and the prefill of a KV cache, by the names that users give.

layout   dynamic   memory that grows with the tokens
         static    memory for a fixed number of tokens, allocated once
         paged     pages that any sequence may hold
         none      no cache: every step computes all tokens again
policy   one of `qbench.policies`, as "full", "window:1024", "sinks:4+1020" or "snapkv:budget=512"
prefill  one of `qbench.prefill`, as "dense", "star:25%" or "flexprefill:gamma=0.9"
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qbench.run.choices import CPU, IN_TORCH, KERNEL, SDPA, TEXTBOOK, TRITON, check_attention_name
from qbench.run.rank_layout import ONE_RANK, RankLayout
from qbench.words.written import nearest
from quant.errors import InputError

if TYPE_CHECKING:
    from qbench.policies import CachePolicy
    from qbench.prefill import PrefillPattern

LAYOUTS = DYNAMIC, STATIC, PAGED, NONE = "dynamic", "static", "paged", "none"
ON_DEVICES = DYNAMIC, PAGED
FULL = "full"
DENSE = "dense"
QUALITY_CHUNK = 256  # tokens of a text per forward pass if quality is measured under a policy that evicts


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """A cache as a user asks for it; `runtime.caches.CacheMaker` builds it.

    layout         one of LAYOUTS
    policy         tokens that the cache keeps, as `qbench.policies.parse_policy` reads it
    prefill_chunk  tokens of a sequence that pass at once, at most; None: as many as the cache takes
    prefill        blocks of the attention matrix that a prefill computes, as `qbench.prefill.parse_pattern` reads it
    kv_ram         bytes of memory for keys and values, which spill to a disk beyond it; a float is a share of those of
                   the whole cache; None: all stay in memory
    kv_disk        bytes of that disk
    raises         InputError for an unknown name, and for values that do not go together
    """

    layout: str = DYNAMIC
    policy: str = FULL
    prefill_chunk: int | None = None
    prefill: str = DENSE
    kv_ram: int | float | None = None
    kv_disk: int | None = None

    def __post_init__(self) -> None:
        check_layout(self.layout)
        check_policy(self.policy)
        check_pattern(self.prefill)
        check_cache(self)

    def __str__(self) -> str:
        chunk = "" if self.prefill_chunk is None else f", {self.prefill_chunk} tokens at once"
        pattern = "" if self.prefill == DENSE else f", prefill {self.prefill}"
        return (self.layout if self.policy == FULL else self.policy) + chunk + pattern

    def ram_bytes(self, whole_bytes: int) -> int:
        """Memory of the keys and values of a cache that takes so much without a disk."""
        ram = whole_bytes if self.kv_ram is None else self.kv_ram
        return min(whole_bytes, round(ram * whole_bytes) if isinstance(ram, float) else ram)

    def for_quality(self) -> "CacheSpec":
        """The spec with a prefill chunk if the policy evicts between forward passes.

        A text that passes at once ends before the first eviction, so its logits would be those of policy full.
        """
        if self.prefill_chunk is not None or self.policy == FULL or self.make_policy().position_only:
            return self
        return replace(self, prefill_chunk=QUALITY_CHUNK)

    def make_policy(self) -> "CachePolicy":
        from qbench.policies import parse_policy  # imports torch

        return parse_policy(self.policy)

    def make_pattern(self) -> "PrefillPattern":
        from qbench.prefill import parse_pattern  # imports torch

        return parse_pattern(self.prefill)


def check_layout(name: str) -> None:
    """raises InputError if the name is not one of LAYOUTS"""
    kind = name.partition(":")[0]
    if kind in ("window", "sinks"):
        raise InputError(f"cache {name!r} is a policy now: {name}; layouts are {', '.join(LAYOUTS)}")
    if name not in LAYOUTS:
        raise InputError(f"unknown cache {name!r}; known: {', '.join(LAYOUTS)}{nearest(name, LAYOUTS)}")


def check_policy(text: str) -> None:
    """raises InputError for an unknown policy, and for options that it does not have"""
    if text != FULL:
        from qbench.policies import parse_policy  # imports torch

        parse_policy(text)


def check_pattern(text: str) -> None:
    """raises InputError for an unknown prefill pattern, and for options that it does not have"""
    if text != DENSE:
        from qbench.prefill import parse_pattern  # imports torch

        parse_pattern(text)


@dataclass(frozen=True, slots=True)
class NamedCache:
    """A cache by its names, and those of the run that it is asked for.

    attention   None: any
    """

    spec: CacheSpec
    device: str = CPU
    attention: str | None = None
    layout: RankLayout = ONE_RANK

    @property
    def policy(self) -> "CachePolicy | None":
        """None for policy full"""
        return None if self.spec.policy == FULL else self.spec.make_policy()

    @property
    def has_pattern(self) -> bool:
        return self.spec.prefill != DENSE

    @property
    def pattern(self) -> str:
        """In the words of messages"""
        return f"prefill pattern {self.spec.prefill}"

    @property
    def is_in_torch(self) -> bool:
        return self.attention in IN_TORCH

    @property
    def has_lanes(self) -> bool:
        """Whether the lanes of one stage compute parts of a prompt by the pattern"""
        return self.layout.sp > 1 and self.layout.pp == 1 and self.spec.make_pattern().in_lanes

    @property
    def elsewhere(self) -> str:
        """Attention of other devices alone"""
        return TRITON if self.device == CPU else KERNEL

    @property
    def here(self) -> tuple[str, ...]:
        return (*IN_TORCH, KERNEL if self.device == CPU else TRITON)

    @property
    def of_the_cpu(self) -> str | None:
        """The property of the policy that gpu_kernels lack; None: they run it"""
        policy = self.policy
        if policy is None:
            return None
        if policy.needs_future:
            return "reads a text twice, which is done on the CPU alone; choose device cpu"
        if policy.retrieval:
            return "lets each query choose its pages, which is done on the CPU alone; choose device cpu, or snapkv"
        if policy.has_sinks:
            return "turns each query twice, by its places in the text and in the cache; choose device cpu, or a window"
        return None

    def on_ranks(self, option: str) -> str:
        return f"{option} does not combine with {self.layout} yet; leave it out, or run on one rank"


def _may_not_spill(asked: NamedCache) -> bool:
    stays = asked.policy is not None and not asked.policy.may_spill
    return asked.spec.kv_ram is not None and (stays or (asked.spec.layout, asked.spec.prefill) != (DYNAMIC, DENSE))


def _why_no_spill(asked: NamedCache) -> str:
    why = asked.policy.why_no_spill if asked.policy is not None else ""
    return (
        f"--kv-ram goes with cache {DYNAMIC}, policy {FULL} or infllm, and prefill {DENSE}; got {asked.spec}"
        f"{f': {why}' if why else ''}"
    )


When = Callable[[NamedCache], bool]
Why = Callable[[NamedCache], str]
# Reasons against a cache that its names show: when, and why. `runtime.caches.rules` has those of a model.
RULES: tuple[tuple[When, Why], ...] = (
    (
        lambda asked: asked.spec.policy != FULL and asked.spec.layout != DYNAMIC,
        lambda asked: (
            f"cache {asked.spec.layout} goes with policy {FULL}; policy {asked.spec.policy} needs cache {DYNAMIC}"
        ),
    ),
    (
        lambda asked: asked.spec.prefill_chunk is not None and asked.spec.prefill_chunk < 1,
        lambda asked: f"prefill_chunk is {asked.spec.prefill_chunk}, expected at least 1 token",
    ),
    (
        lambda asked: asked.has_pattern and asked.spec.policy != FULL,
        lambda asked: f"{asked.pattern} goes with policy {FULL}; got policy {asked.spec.policy}",
    ),
    (
        lambda asked: asked.has_pattern and asked.spec.layout not in (DYNAMIC, STATIC),
        lambda asked: f"{asked.pattern} goes with cache {DYNAMIC} or {STATIC}; got cache {asked.spec.layout}",
    ),
    (
        lambda asked: asked.has_pattern and asked.spec.prefill_chunk is not None,
        lambda asked: (
            f"{asked.pattern} takes a whole prompt at once; leave out prefill chunk {asked.spec.prefill_chunk}"
        ),
    ),
    (
        lambda asked: asked.spec.kv_disk is not None and asked.spec.kv_ram is None,
        lambda asked: f"--kv-disk {asked.spec.kv_disk} has no effect without --kv-ram; give the memory that it extends",
    ),
    (_may_not_spill, _why_no_spill),
    (
        lambda asked: asked.has_pattern and asked.device != CPU,
        lambda asked: f"{asked.pattern} is on the CPU alone; got device {asked.device}",
    ),
    (
        lambda asked: asked.device != CPU and asked.spec.layout not in ON_DEVICES,
        lambda asked: f"device {asked.device}: got cache {asked.spec}, expected {' or '.join(ON_DEVICES)}",
    ),
    (
        lambda asked: asked.device != CPU and asked.of_the_cpu is not None,
        lambda asked: f"device {asked.device}: policy {asked.spec.policy} {asked.of_the_cpu}",
    ),
    (
        lambda asked: asked.device != CPU and asked.policy is not None and asked.is_in_torch,
        lambda asked: (
            f"policy {asked.spec.policy} needs attention {TRITON} on device {asked.device}; got {asked.attention}"
        ),
    ),
    (
        lambda asked: asked.attention == asked.elsewhere,
        lambda asked: (
            f"attention {asked.attention} is not on device {asked.device}; choose one of {', '.join(asked.here)}"
        ),
    ),
    (
        lambda asked: asked.attention == KERNEL and asked.spec.layout == NONE,
        lambda asked: f"cache {NONE} attends in torch; choose attention {' or '.join(IN_TORCH)}, or another cache",
    ),
    (
        lambda asked: asked.is_in_torch and asked.policy is not None and asked.policy.has_sinks,
        lambda asked: (
            f"policy {asked.spec.policy} rotates each query twice, which attention {asked.attention} does "
            f"not; choose {KERNEL}"
        ),
    ),
    (
        lambda asked: asked.attention == SDPA and asked.policy is not None and asked.policy.observes is not None,
        lambda asked: (
            f"policy {asked.spec.policy} reads attention weights, which {SDPA} does not return; choose "
            f"{TEXTBOOK} or {KERNEL}"
        ),
    ),
    (
        lambda asked: asked.is_in_torch and asked.has_pattern,
        lambda asked: f"{asked.pattern} goes with attention {KERNEL}; got attention {asked.attention}",
    ),
    (
        lambda asked: asked.layout.num_ranks > 1 and asked.spec.policy != FULL,
        lambda asked: asked.on_ranks(f"--policy {asked.spec.policy}"),
    ),
    (
        lambda asked: asked.layout.num_ranks > 1 and asked.has_pattern and not asked.has_lanes,
        lambda asked: asked.on_ranks(f"--prefill {asked.spec.prefill}"),
    ),
    (
        lambda asked: asked.layout.num_ranks > 1 and asked.spec.kv_ram is not None,
        lambda asked: asked.on_ranks("--kv-ram"),
    ),
    (
        lambda asked: asked.layout.sp > 1 and asked.spec.layout not in (DYNAMIC, STATIC),
        lambda asked: asked.on_ranks(f"--cache {asked.spec.layout}"),
    ),
    (
        lambda asked: asked.layout.num_ranks > 1 and asked.device != CPU,
        lambda asked: asked.on_ranks(f"--device {asked.device}"),
    ),
    (
        lambda asked: asked.layout.sp > 1 and asked.attention not in (None, KERNEL),
        lambda asked: asked.on_ranks(f"--attention {asked.attention}"),
    ),
)


def check_cache(
    spec: CacheSpec, device: str = CPU, attention: str | None = None, layout: RankLayout = ONE_RANK
) -> None:
    """raises InputError for an unknown attention, and with every reason against the cache that its names show"""
    if attention is not None:
        check_attention_name(attention)
    asked = NamedCache(spec, device, attention, layout)
    if found := [why(asked) for when, why in RULES if when(asked)]:
        raise InputError("; also: ".join(found))


DEFAULT_CACHE = CacheSpec()
