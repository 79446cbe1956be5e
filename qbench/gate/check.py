"""One thing that the gate compares, and the verdict over all of them together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from qbench.statistics.estimate import Estimate
from qbench.statistics.verdict import holm
from quant.json_data import JsonData
from quant.present import present

ALPHA = 0.05  # of gates over unchanged code, the share that may be red
POWER = 0.9  # with which a loss of `detectable` is found
# Share of alpha. A change of quality touches few checks. Without a share of its own it would compete with all checks of
# speed, whose chance has nothing to do with it: unchanged quality is the same bit by bit.
SHARES = {"quality": 0.4, "memory": 0.1, "speed": 0.5}
MANY = 10_000  # degrees of freedom at which t is normal to four digits


@dataclass(frozen=True, slots=True)
class Check(JsonData):
    """A metric of one case, in the baseline and now.

    `loss` has one sign for every metric: above 0 is worse. It is a share of the baseline (0.05 is 5 % more time, bytes
    or perplexity), or for a KLD and a task's accuracy the difference.
    """

    gate: str  # "quality", "memory" or "speed"
    case: str
    metric: str
    unit: str  # of baseline and now: "nats", "share", "bytes", "tok/s", "" for a perplexity
    baseline: float
    now: float
    loss: Estimate
    is_exact: bool = False  # no chance is in it, as in the bytes of weights: it needs no test
    freedom: int | None = None  # degrees of freedom of the loss's error; None: many
    floor: float = 0.0  # the same model shows a loss up to this against itself
    is_gate: bool = True  # False: shown, and never red
    adjusted_p: float | None = None  # one-sided, Holm's over every check of the gate
    detectable: float | None = None  # the least loss that is found with POWER
    verdict: str = ""  # "worse", "same", "better"; "untold" if there is no interval to judge by


def judge(checks: Sequence[Check], alpha: float = ALPHA) -> list[Check]:
    """The checks with their verdicts: with nothing changed, any is "worse" in at most `alpha` of all gates.

    worse    the loss is above 0 by its p value among all the gate's checks and by its own interval, and above the floor
    source   Holm 1979 within a gate; Bonferroni between them, by SHARES of alpha among those with something to test
    """
    tested = [check for check in checks if is_tested(check)]
    shares = {gate: SHARES[gate] for gate in {check.gate for check in tested}}
    adjusted, steps = {}, {}
    for gate, share in shares.items():
        family, part = [check for check in tested if check.gate == gate], share / sum(shares.values())
        p_values = holm([one_sided(check.loss) for check in family])
        adjusted |= {id(check): min(1.0, present(p) / part) for check, p in zip(family, p_values, strict=True)}
        steps[gate] = alpha * part / len(family)
    return [_judged(check, adjusted.get(id(check)), steps.get(check.gate, alpha), alpha) for check in checks]


def sees_slowdown(judged: Sequence[Check]) -> float:
    """The slowdown that every check of speed would find; infinite if a check has too few samples to find any."""
    found = [check.detectable for check in judged if check.gate == "speed"]
    return max((math.inf if least is None else least for least in found), default=math.inf)


def is_tested(check: Check) -> bool:
    """Whether chance may call it worse: not of bytes, and not where every sample is the same on both sides."""
    loss = check.loss
    is_identical = loss.value == 0 and loss.error == 0
    return check.is_gate and not check.is_exact and not is_identical and loss.p_value is not None


def one_sided(loss: Estimate) -> float:
    """p value of a loss of at least this if there is no true loss; the two-sided p value counts gains too."""
    half = present(loss.p_value) / 2
    return half if loss.value > 0 else 1 - half


def _judged(check: Check, adjusted_p: float | None, step: float, alpha: float) -> Check:
    """step: limit that Holm sets for the smallest p value of the gate, so for any"""
    least = detectable_loss(check, step)
    return replace(check, adjusted_p=adjusted_p, detectable=least, verdict=_verdict(check, adjusted_p, step, alpha))


def _verdict(check: Check, adjusted_p: float | None, step: float, alpha: float) -> str:
    loss = check.loss
    if check.is_exact:
        return "worse" if loss.value > check.floor else "better" if loss.value < -check.floor else "same"
    if loss.low is None or loss.high is None:
        return "untold"
    sure = one_sided(loss) if adjusted_p is None else adjusted_p
    if sure < alpha and loss.low > 0 and loss.value > check.floor:
        return "worse"
    is_sure_gain = 1 - one_sided(loss) < step  # a gain is reported, and decides nothing
    return "better" if is_sure_gain and loss.high < 0 and loss.value < -check.floor else "same"


def detectable_loss(check: Check, alpha: float) -> float | None:
    """The least true loss that ends as "worse" with POWER: its t must pass alpha's quantile, and its value the floor.

    alpha    of this check alone
    source   Cohen 1988, section 2.4 (the noncentral t distribution of a t that has something to find)
    """
    error = check.loss.error
    if check.is_exact or error is None:
        return None
    from scipy.special import nctdtrinc, ndtri, stdtrit

    freedom = check.freedom or MANY
    for_t = float(nctdtrinc(freedom, 1 - POWER, stdtrit(freedom, 1 - alpha)))
    return max(for_t * error, check.floor + float(ndtri(POWER)) * error)
