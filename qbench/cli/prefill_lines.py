"""The lines about a prefill pattern, for people."""

from qbench.measure.metrics import Facts


def prefill_lines(facts: Facts) -> dict[str, str]:
    """The pattern, its share of the causal blocks, and of the dense attention weights if that was measured."""
    if facts.prefill is None:
        return {}
    parts = [facts.prefill]
    if facts.prefill_blocks is not None:
        parts.append(f"{100 * facts.prefill_blocks:.1f} % of the blocks")
    if facts.prefill_mass is not None:
        parts.append(f"{100 * facts.prefill_mass:.2f} % of the attention mass")
    return {"prefill": ", ".join(parts)}
