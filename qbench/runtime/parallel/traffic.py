"""Traffic: bytes and messages between ranks, counted as they are sent, and the formula for both."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

from qbench.run.rank_layout import RankLayout
from quant.json_data import JsonData

FLOAT_BYTES = 4  # every value that ranks exchange is float32


@dataclass(slots=True)
class Traffic(JsonData):
    """Counts of one rank since it loaded its part.

    num_bytes, num_messages  sent to other ranks
    seconds     of sending and of waiting for others
    num_passes  forward passes
    num_parts   micro-batches of all passes, as many as passes without them
    stage_seconds, layer_seconds   of all passes without the head; of these, in which this rank ran layers or embedded
    num_tokens  tokens of all passes
    num_wanted  tokens whose logits were asked for
    num_apart   tokens that lanes computed apart from each other, without an exchange; not among `num_tokens`
    num_shown   tokens among those whose hidden state this rank sent to the other lanes, in `num_shows` messages to each
    num_pairs   of a token and a routed expert that this rank computed
    num_counts  exchanges of the number of tokens that lanes send to each other
    num_away    tokens of this rank that it sent to a lane with their experts, once per lane and layer
    num_guests  tokens of other lanes that this rank computed, once per layer
    num_bundles messages with tokens or their results
    """

    num_bytes: int = 0
    num_messages: int = 0
    seconds: float = 0.0
    num_passes: int = 0
    num_parts: int = 0
    stage_seconds: float = 0.0
    layer_seconds: float = 0.0
    num_tokens: int = 0
    num_wanted: int = 0
    num_apart: int = 0
    num_shown: int = 0
    num_shows: int = 0
    num_pairs: int = 0
    num_counts: int = 0
    num_away: int = 0
    num_guests: int = 0
    num_bundles: int = 0

    def restart(self) -> None:
        """Count from 0."""
        for field in fields(self):
            setattr(self, field.name, field.default)

    def sent(self, num_bytes: int) -> None:
        self.num_bytes += num_bytes
        self.num_messages += 1


@dataclass(frozen=True, slots=True)
class Exchanges(JsonData):
    """Values per token of every exchange between the lanes of a stage, in one forward pass.

    of_tokens  that every token takes part in
    of_wanted  that tokens whose logits are asked for take part in
    of_away    of a token that travels to a lane with its experts, and of the result that comes back
    """

    of_tokens: tuple[int, ...] = ()
    of_wanted: tuple[int, ...] = ()
    of_away: tuple[int, int] = (0, 0)

    def and_tokens(self, values: Sequence[int]) -> Self:
        return replace(self, of_tokens=(*self.of_tokens, *values))

    def and_wanted(self, values: Sequence[int]) -> Self:
        return replace(self, of_wanted=(*self.of_wanted, *values))

    def moved(self, count: int) -> Self:
        """The last exchanges of all tokens as those of wanted tokens."""
        return replace(self, of_tokens=self.of_tokens[:-count], of_wanted=(*self.of_wanted, *self.of_tokens[-count:]))


def expected_traffic(
    layout: RankLayout, rank: int, work: Traffic, *, exchanges: Exchanges, hidden_size: int
) -> tuple[int, int]:
    """Bytes and messages that `rank` sends for the passes and tokens of `work`.

    Each lane sends its values of an exchange to all others. Every stage but the last sends the hidden state of
    each token to the next one, a message per micro-batch; the last sends that of each wanted token to all others.
    Under dispatch "all-to-all", the routers of this rank and of the other lanes give the number of tokens that travel.

    exchanges  of the rank's stage
    """
    others = layout.num_lanes - 1
    values = others * (sum(exchanges.of_tokens) * work.num_tokens + sum(exchanges.of_wanted) * work.num_wanted)
    values += others * hidden_size * work.num_shown
    to_experts, back = exchanges.of_away
    values += others * work.num_counts + to_experts * work.num_away + back * work.num_guests
    messages = others * work.num_counts + work.num_bundles
    messages += others * ((len(exchanges.of_tokens) + len(exchanges.of_wanted)) * work.num_passes + work.num_shows)
    later = layout.pp - 1
    if layout.stage(rank) < later:
        values += hidden_size * work.num_tokens
        messages += work.num_parts
    else:
        values += later * hidden_size * work.num_wanted
        messages += later * work.num_passes
    return FLOAT_BYTES * values, messages


def bubble(of_ranks: Sequence[Traffic]) -> float:
    """Share of the time of all stages in which they ran no layer and no embedding, messages included, 0 to 1."""
    return 1 - sum(each.layer_seconds for each in of_ranks) / sum(each.stage_seconds for each in of_ranks)


def expected_bubble(seconds: Sequence[float], parts_per_pass: float) -> float:
    """The share without messages, if all m parts of a pass take the same time in a stage.

    The slowest stage works without a pause, and the other stages compute one part before and after it. For p stages of
    equal times: (p - 1) / (m + p - 1)

    seconds  of each stage, in any unit
    source   Huang et al. 2019, GPipe, arXiv:1811.06965, section 2.3
    """
    work, slowest = sum(seconds), max(seconds)
    length = (work + (parts_per_pass - 1) * slowest) / parts_per_pass
    return 1 - work / (len(seconds) * length)
