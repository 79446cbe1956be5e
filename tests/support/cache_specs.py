"""A `CacheSpec` from one word: a layout, or a policy."""

from qbench.run.cache_spec import LAYOUTS, CacheSpec
from qbench.run.options import RunOptions

ONE_OF_EACH = (*LAYOUTS, "window:300")


def spec_of(text: str) -> CacheSpec:
    """ "paged" or "window:9" -> the spec"""
    return CacheSpec(text) if text in LAYOUTS else CacheSpec(policy=text)


def options_of(text: str) -> RunOptions:
    """The same as options of a model."""
    spec = spec_of(text)
    return RunOptions(cache=spec.layout, policy=spec.policy)
