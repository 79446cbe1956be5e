"""`CacheSpec`: the layout, the policy and the prefill of a KV cache, by the names that users give.

layout   dynamic   memory that grows with the tokens
         static    memory for a fixed number of tokens, allocated once
         paged     pages that any sequence may hold
         none      no cache: every step computes all tokens again
policy   one of `qbench.policies`, as "full", "window:1024", "sinks:4+1020" or "snapkv:budget=512"
prefill  one of `qbench.prefill`, as "dense", "star:25%" or "flexprefill:gamma=0.9"
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qbench.run.rank_layout import RankLayout, refuse_on_ranks
from qbench.words.written import nearest
from quant.errors import InputError

if TYPE_CHECKING:
    from qbench.policies import CachePolicy
    from qbench.prefill import PrefillPattern

LAYOUTS = DYNAMIC, STATIC, PAGED, NONE = "dynamic", "static", "paged", "none"
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
        if self.policy != FULL and self.layout != DYNAMIC:
            raise InputError(f"cache {self.layout} goes with policy full; policy {self.policy} needs cache dynamic")
        if self.prefill_chunk is not None and self.prefill_chunk < 1:
            raise InputError(f"prefill_chunk is {self.prefill_chunk}, expected at least 1 token")
        if self.prefill != DENSE:
            self._check_goes_with_pattern()
        if self.kv_disk is not None and self.kv_ram is None:
            raise InputError(
                f"--kv-disk {self.kv_disk} has no effect without --kv-ram; give the memory that it extends"
            )
        if self.kv_ram is not None:
            self._check_goes_with_tiers()

    def _check_goes_with_tiers(self) -> None:
        policy = None if self.policy == FULL else self.make_policy()
        suits = policy is None or policy.may_spill
        if not suits or (self.layout, self.prefill) != (DYNAMIC, DENSE):
            why = f": {policy.why_no_spill}" if policy is not None and policy.why_no_spill else ""
            raise InputError(
                f"--kv-ram goes with cache {DYNAMIC}, policy {FULL} or infllm, and prefill {DENSE}; got {self}{why}"
            )

    def _check_goes_with_pattern(self) -> None:
        pattern = f"prefill pattern {self.prefill}"
        if self.policy != FULL:
            raise InputError(f"{pattern} goes with policy {FULL}; got policy {self.policy}")
        if self.layout not in (DYNAMIC, STATIC):
            raise InputError(f"{pattern} goes with cache {DYNAMIC} or {STATIC}; got cache {self.layout}")
        if self.prefill_chunk is not None:
            raise InputError(f"{pattern} takes a whole prompt at once; leave out prefill chunk {self.prefill_chunk}")

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


DEFAULT_CACHE = CacheSpec()


def check_ranked_cache(spec: CacheSpec, layout: RankLayout) -> None:
    """raises InputError for a cache that several ranks do not have yet"""
    refuse_on_ranks(
        {
            f"--policy {spec.policy}": spec.policy != FULL,
            f"--prefill {spec.prefill}": spec.prefill != DENSE and not _has_lanes(spec, layout),
            "--kv-ram": spec.kv_ram is not None,
            f"--cache {spec.layout}": layout.sp > 1 and spec.layout not in (DYNAMIC, STATIC),
        },
        layout,
    )


def _has_lanes(spec: CacheSpec, layout: RankLayout) -> bool:
    """Whether the lanes of one stage compute parts of a prompt by this pattern"""
    return layout.sp > 1 and layout.pp == 1 and spec.make_pattern().in_lanes
