"""Two models on the same blocks of text: their common part cancels, so that small differences show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from qbench.statistics.estimate import Estimate
from qbench.statistics.intervals import block_mean, student_estimate
from quant.errors import InputError
from quant.present import present


class Blocks(Protocol):
    """Sums of each block of text; units: its words or bytes, if the protocol counts those"""

    @property
    def unit(self) -> str | None: ...
    @property
    def tokens(self) -> Sequence[int] | None: ...
    @property
    def units(self) -> Sequence[int] | None: ...
    @property
    def nll(self) -> Sequence[float] | None: ...
    @property
    def kld(self) -> Sequence[float] | None: ...
    @property
    def same_top(self) -> Sequence[float] | None: ...


def perplexity_ratio(blocks_a: Blocks, blocks_b: Blocks) -> Estimate:
    """Perplexity of B over that of A: exp of the mean difference of negative log-likelihood, by token, word or byte.

    raises   InputError for blocks that do not pair
    """
    _require_pairs(blocks_a, blocks_b)
    counts = blocks_a.tokens if blocks_a.units is None else blocks_a.units
    return _mean_difference(blocks_a.nll, blocks_b.nll, counts).exp()


def kld_difference(blocks_a: Blocks, blocks_b: Blocks) -> Estimate:
    """Mean KL divergence of B minus that of A, nats, both from the same reference. raises InputError as above"""
    _require_pairs(blocks_a, blocks_b)
    return _mean_difference(blocks_a.kld, blocks_b.kld, blocks_a.tokens)


def kld_ratio(blocks_a: Blocks, blocks_b: Blocks) -> Estimate:
    """Mean KL divergence of B over that of A, both from the same reference; p_value is that of ratio 1.

    raises   InputError as above, and ValueError if A does not diverge at all
    """
    _require_pairs(blocks_a, blocks_b)
    ratio = block_mean(np.asarray(present(blocks_b.kld)), np.asarray(present(blocks_a.kld))).at_least(0.0)
    return replace(ratio, p_value=kld_difference(blocks_a, blocks_b).p_value)


def kld_log_ratio(blocks_a: Blocks, blocks_b: Blocks) -> Estimate:
    """Mean over the blocks of log(KL divergence of B / that of A), by Student's law; no p value for a divergence of 0.

    The test of races. Divergences of one text have most of their spread in common, and a logarithm takes that out
    however far the ratio is from 1, so that a large ratio shows on few blocks. It asks whether blocks tend to one
    side, which is the question of `kld_ratio` if chance acts in the same way on A and B.

    raises   InputError as above
    """
    _require_pairs(blocks_a, blocks_b)
    of_a, of_b = (np.asarray(present(blocks.kld)) for blocks in (blocks_a, blocks_b))
    if len(of_a) < 2 or not (of_a > 0).all() or not (of_b > 0).all():
        return Estimate(0.0)
    logs = np.log(of_b / of_a)
    return student_estimate(float(logs.mean()), float(logs.std(ddof=1) / len(logs) ** 0.5), len(logs) - 1)


@dataclass(frozen=True, slots=True)
class Together:
    """A loss and the losses that it may be the sum of; each counts from the loss of `base`."""

    whole: Blocks
    parts: Sequence[Blocks]
    base: Blocks


def kld_excess(sums: Sequence[Together]) -> Estimate:
    """Mean KL divergence of the wholes minus that of their parts, nats, added up over `sums`.

    All are from the same reference. raises InputError as above
    """
    excess: np.ndarray = np.zeros(len(sums[0].whole.tokens or ()))
    for each in sums:
        for part in (sums[0].whole, each.base, *each.parts):
            _require_pairs(each.whole, part)
        base = np.array(present(each.base.kld), dtype=np.float64)
        excess += np.array(present(each.whole.kld)) - base
        for part in each.parts:
            excess -= np.array(present(part.kld)) - base
    return block_mean(excess, np.asarray(present(sums[0].whole.tokens)))


def same_top_difference(blocks_a: Blocks, blocks_b: Blocks) -> Estimate:
    """Share of tokens that the model ranks first as its reference does, B minus A. raises InputError as above"""
    _require_pairs(blocks_a, blocks_b)
    return _mean_difference(blocks_a.same_top, blocks_b.same_top, blocks_a.tokens)


def _mean_difference(a: Sequence[float] | None, b: Sequence[float] | None, counts: Sequence[int] | None) -> Estimate:
    """Mean difference of sums by block, B minus A."""
    return block_mean(np.subtract(present(b), present(a)), np.asarray(present(counts)))


def _require_pairs(blocks_a: Blocks, blocks_b: Blocks) -> None:
    if blocks_a.unit != blocks_b.unit or list(blocks_a.tokens or ()) != list(blocks_b.tokens or ()):
        sides = " and ".join(_described(blocks) for blocks in (blocks_a, blocks_b))
        raise InputError(f"blocks do not pair: {sides}; measure both on the same text under the same protocol")


def _described(blocks: Blocks) -> str:
    tokens = blocks.tokens or ()
    return f"{len(tokens)} {blocks.unit}s of {sum(tokens)} tokens"


def require_same_protocol(a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    """raises InputError where two protocols, as records keep them, differ, naming each field with both values"""
    if a["hash"] == b["hash"]:
        return
    raise InputError(f"rows of unlike protocol do not compare; they differ in {differing(a, b)}")


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """ "window (1024 and 512), stride (1024 and 512)" """
    names = [name for name in {**a, **b} if name != "hash" and a.get(name) != b.get(name)]
    return ", ".join(f"{name} ({a.get(name)} and {b.get(name)})" for name in names) or "their hashes"
