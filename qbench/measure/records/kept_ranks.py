"""The rows of several ranks: distances from one rank and traffic of `compare`, rates and checks of `plan --cluster`."""

from dataclasses import dataclass, field
from typing import ClassVar

from qbench.measure.quality_figures import AttentionDelta
from qbench.measure.rank_figures import Exchange
from qbench.measure.records.kept_kinds import ModelRow, SizedRow
from qbench.run.cache_spec import DENSE
from qbench.run.rank_layout import SUM, RankLayout
from quant.json_data import JsonData, JsonRow

EQUAL = "equal"  # bit for bit
WITHIN = "within the floor"
REFUSED = "refused"
NOT_EQUAL = "not equal"
ABOVE = "above the floor"
RED = (NOT_EQUAL, ABOVE)


@dataclass(frozen=True, slots=True)
class RanksCase(ModelRow):
    """A model on several ranks, as `RankLayout` divides it, and the text that it was compared on with one rank."""

    json_omits: ClassVar[tuple[str, ...]] = ("micro_batches", "dispatch")

    tp: int = 1
    pp: int = 1
    cut: str = ""
    ep: int = 1
    sp: int = 1
    micro_batches: int = 1
    dispatch: str = SUM
    prefill: str = DENSE
    compute: str | None = None
    threads: int | None = None
    text: str | None = None
    windows: int | None = None


@dataclass(frozen=True, slots=True)
class RanksMetrics(JsonRow):
    """Distance of the logits from those of one rank, and the floor that decides; a refused cut has a reason alone.

    delta     distance of the ranks' logits from those of one rank; None: the cut is refused
    floor     distance of one rank's logits from those of the same model in float32: of its arithmetic alone
    reason    of a refusal
    link      between the ranks, one of qbench.run.rank_layout.LINKS
    exchange  their traffic; logits of all tokens are wanted, as in decode
    """

    verdict: str = ""
    delta: AttentionDelta | None = None
    floor: AttentionDelta | None = None
    reason: str | None = None
    link: str | None = None
    exchange: Exchange | None = None


@dataclass(frozen=True, slots=True)
class RankDistance(JsonData):
    """One recipe, and its distance from one rank."""

    json_flat: ClassVar[tuple[str, ...]] = ("layout", "found")

    model: str
    recipe: str | None
    kv_format: str | None
    prefill: str
    layout: RankLayout
    compute: str
    found: RanksMetrics


def setup_name(recipe: str | None, kv_format: str | None, prefill: str) -> str:
    """ "q4_0+kv-int8+star:25%"; "as stored" without a recipe"""
    return "+".join([recipe or "as stored", *filter(None, [kv_format, prefill if prefill != DENSE else None])])


@dataclass(frozen=True, slots=True)
class RankRatesCase(SizedRow):
    """A model, a rank's threads and the number of ranks that rates were measured with, all at once."""

    threads: int | None = None
    num_ranks: int = field(kw_only=True)
    link: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceRates(JsonRow):
    """Rates of a device.

    operations  per second, of matmuls over many tokens
    bandwidth   bytes of weights, keys and values per second
    layer_s     seconds of a layer per forward pass in addition to its bytes and operations
    step_s      the same of a forward pass in addition to its layers
    called_layer_s  as layer_s, of a layer whose products and attention are calls from Python; None: the same
    shared_layer_s  as called_layer_s, of a layer that merges attention to the shares of lanes, without its messages
    """

    operations: float
    bandwidth: float
    layer_s: float = 0.0
    step_s: float = 0.0
    called_layer_s: float | None = None
    shared_layer_s: float | None = None


@dataclass(frozen=True, slots=True)
class LinkRates(JsonRow):
    """Rates of the link between two ranks.

    latency_s   seconds of a message without bytes
    bandwidth   bytes per second
    call_s      seconds more of a message that Python sends by itself, as under cut "gather" and between stages
    over        the measured link, one of qbench.run.rank_layout.LINKS; None: not measured
    """

    json_omits: ClassVar[tuple[str, ...]] = ("over",)

    latency_s: float
    bandwidth: float
    call_s: float = 0.0
    over: str | None = None


@dataclass(frozen=True, slots=True)
class CheckedLayout(JsonRow):
    """A decode step of one layout.

    predicted_s, measured_s   seconds of the step
    ratio                     the first over the second
    """

    layout: str
    predicted_s: float
    measured_s: float
    ratio: float


@dataclass(frozen=True, slots=True)
class RankRates(JsonRow):
    """Rates of a rank and of the link between ranks.

    checked      steps that were planned with these rates and then measured
    busy_before  share of the processor that other programs had
    """

    device: DeviceRates | None = None
    between: LinkRates | None = None
    checked: list[CheckedLayout] | None = None
    busy_before: float | None = None
