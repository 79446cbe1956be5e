"""Shares of prefills in a case that measures several things: of one part's prompts, not of the last one's."""

from qbench.measure.metrics import Facts, Metrics
from qbench.sweeps.jobs import joined


def part(blocks: float | None, mass: float | None = None) -> Metrics:
    return Metrics(facts=Facts(model="m", prefill="star", prefill_blocks=blocks, prefill_mass=mass))


def shares(*parts: Metrics) -> tuple[float | None, float | None]:
    facts = joined(parts).facts
    assert facts is not None and facts.model == "m"
    return facts.prefill_blocks, facts.prefill_mass


def test_shares_match_the_part_with_mass():
    assert shares(part(0.5), part(0.6, 0.9), part(0.7)) == (0.6, 0.9)


def test_without_mass_they_match_the_first_part():
    assert shares(part(0.5), part(0.7)) == (0.5, None)


def test_dense_prefills_have_no_shares():
    assert shares(part(None), part(None)) == (None, None)
