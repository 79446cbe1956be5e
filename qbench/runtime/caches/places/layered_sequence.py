"""Pages of groups of layers: sequences of a pool if some layers of a model have a window and others see all tokens."""

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from qbench.policies import CachePolicy
from qbench.runtime.caches.places.pages import OutOfPages, PagedSequence, PagePool
from quant.errors import InputError
from quant.models import AttentionRule, ModelConfig


class LayeredSequence(PagedSequence):
    """Each group of layers takes its own pages, so that a window frees pages whatever other layers keep.

    parts   one per group
    """

    def __init__(self, pool: PagePool, parts: Sequence[PagedSequence]) -> None:
        self._parts = list(parts)
        super().__init__(pool)

    @property
    def parts(self) -> list[PagedSequence]:
        return self._parts

    @property
    def seq_len(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride] - an attribute of the base class
        return self.parts[0].seq_len

    @seq_len.setter
    def seq_len(self, seq_len: int) -> None:
        for part in self.parts:
            part.seq_len = seq_len

    @property
    def filled_pages(self) -> list[int]:
        return [page for part in self.parts for page in part.filled_pages]

    @property
    def frees_pages(self) -> bool:
        return True

    def reserve(self, num_tokens: int) -> None:
        try:
            for part in self.parts:
                part.reserve(num_tokens)
        except OutOfPages:
            self.trim()
            raise

    def trim(self) -> None:
        for part in self.parts:
            part.trim()

    def truncate(self, seq_len: int) -> None:
        for part in self.parts:
            part.truncate(seq_len)


def layer_groups(config: ModelConfig, policy: CachePolicy) -> list[list[int]]:
    """Layers that keep the same tokens, in groups of one size, so that a page of a pool can serve any group.

    All layers are one group unless `policy` is a window that only some of them have.
    """
    layers = list(range(config.num_layers))
    if policy.span is None or policy.span.sinks:
        return [layers]
    rules = window_rules(config, policy.span.window)
    near = [layer for layer in layers if rules[layer].window]
    far = [layer for layer in layers if not rules[layer].window]
    size = gcd(len(near), len(far))
    return [its[start : start + size] for its in (near, far) for start in range(0, len(its), size)]


def window_rules(config: ModelConfig, window: int | None) -> list[AttentionRule]:
    """The attention rule of each layer, with a window of at most `window` tokens; None: as the model has it.

    raises   InputError if no layer has a window
    """
    rules = [config.attention_rule(layer) for layer in range(config.num_layers)]
    if window is not None:
        return [replace(rule, window=min(rule.window or window, window)) for rule in rules]
    if not any(rule.window for rule in rules):
        raise InputError("all layers of this model attend to all tokens; give them a window, as in window:256")
    return rules


def pages_per_row(policy: CachePolicy, config: ModelConfig, *, by_sequence: bool) -> int:
    """by_sequence: whether groups of tokens lose single ones, so that a page has all layers whatever their windows"""
    if policy.per_head_lengths and config.mla is None:
        return config.num_layers * config.num_kv_heads
    return 1 if by_sequence else len(layer_groups(config, policy))
