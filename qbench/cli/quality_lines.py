"""Output of `qbench eval` for people: each figure with its interval, names as in the JSON or as llama.cpp's."""

from typing import TYPE_CHECKING

from qbench.cli.output import print_pairs, readable_bytes
from qbench.measure.metrics import Facts, Metrics
from qbench.measure.quality_figures import AttentionDelta, KLDBin, NonFinite, Quality
from qbench.run.choices import FAST
from qbench.statistics.estimate import ENOUGH_BLOCKS
from quant.present import present

if TYPE_CHECKING:
    from qbench.quality.save_reference import KeptFile, SavedReference

# The loss of a token has a standard deviation of about 3 nats, so the mean of 1,000 is known to about 0.2.
FEW_TOKENS = 1000


def print_quality(result: Metrics) -> None:
    """Perplexity under each protocol, and with a reference the divergence under the first."""
    quality = present(result.quality)
    lines = _lines(present(result.facts), result.protocols or {"": quality})
    if quality.kld:
        lines |= _divergence(quality)
    print_pairs(lines)


def few_tokens_warning(result: Metrics) -> str | None:
    """A warning if the first perplexity is one of too few tokens, else None."""
    quality = present(result.quality)
    if quality.perplexity is None or present(quality.num_tokens) >= FEW_TOKENS:
        return None
    return (
        f"warning: perplexity of {quality.num_tokens} tokens says little about a model; use a text of {FEW_TOKENS} "
        "tokens or more"
    )


def print_kept(result: "SavedReference") -> None:
    """The perplexity of the reference, and the file of its logits."""
    print_pairs(_lines(result.facts, {"": result.quality}) | _kept(result.logits))


def _lines(facts: Facts, protocols: dict[str, Quality]) -> dict[str, str | None]:
    lines: dict[str, str | None] = {"model": facts.model}
    if (facts.compute or FAST) != FAST:
        lines["compute"] = facts.compute
    if facts.attention is not None:
        lines["attention"] = facts.attention
    lines |= prefill_lines(facts)
    for quality in protocols.values():
        name = present(present(quality.protocol).name)
        lines[name] = _perplexity(quality)
        if quality.non_finite_at:
            lines[f"{name}, not finite"] = _place(quality.non_finite_at)
        if quality.attention_delta:
            lines[f"{name}, textbook"] = _attention_delta(quality.attention_delta)
    return lines | {"bits_per_weight": f"{facts.bits_per_weight:.4f}"}


def _place(found: NonFinite) -> str:
    """ "NaN first at token 17 of window 3, in layer 5 after the feed-forward net" """
    where = {None: "", "head": ", in the head", "embedding": ", in the embedding"}.get(found.part)
    if where is None:
        where = f", in layer {found.layer} after the {found.part}"
    return f"{found.kind} first at token {found.token} of window {found.window}{where}"


def _perplexity(quality: Quality) -> str | None:
    if quality.perplexity is None:
        return None
    interval, protocol = quality.perplexity_interval, present(quality.protocol)
    spread = f"95 % {interval[0]:.4f} to {interval[1]:.4f}, " if interval else _why_none(quality)
    unit = f"a {protocol.unit}, " if protocol.unit else ""
    extra = "" if quality.bits_per_byte is None else f", {quality.bits_per_byte:.4f} bits a byte"
    counted = f"{unit}{spread}{quality.num_tokens:,} tokens{extra}"
    return f"perplexity {quality.perplexity:.4f}  ({counted}; {present(protocol.hash)[:12]})"


def _why_none(quality: Quality) -> str:
    """Why a perplexity has no interval, or "" if no block is counted."""
    blocks = quality.blocks
    few = blocks is not None and blocks.tokens is not None and len(blocks.tokens) < ENOUGH_BLOCKS
    return f"no interval from fewer than {ENOUGH_BLOCKS} {blocks.unit}s, " if few and blocks is not None else ""


def _attention_delta(delta: AttentionDelta) -> str:
    kld = f"kld mean {delta.mean_kld:.2e}, max {delta.max_kld:.2e} nats"
    return f"max |delta logit| {delta.max_logit:.2e}, {kld}, same_top {100 * present(delta.same_top):.3f} %"


def _kept(logits: "KeptFile") -> dict[str, str]:
    how = logits.mode if logits.k is None else f"{logits.mode}, k = {logits.k}"
    smaller = logits.fp16_bytes / logits.bytes
    against = f"{smaller:.1f}x smaller" if smaller >= 1 else f"{1 / smaller:.1f}x larger"
    return {"logits": logits.file, "kept": f"{how}: {readable_bytes(logits.bytes)}, {against} than fp16 logits"}


def _divergence(quality: Quality) -> dict[str, str | None]:
    """KLD of the first protocol: our interval, then llama-perplexity's table, whose ± takes tokens for independent"""
    interval, how = quality.kld_interval, present(quality.kld_reference)
    spread = f"  (95 % {interval[0]:.3e} to {interval[1]:.3e})" if interval else ""
    lines: dict[str, str | None] = {"kld mean": f"{quality.mean_kld:.3e} nats{spread}"}
    if how.mode == "top-k":
        off = f"± {how.error_nats:.1e} nats expected, {how.error_bound_nats:.1e} at most"
        lines["kld error"] = f"{off}: of the reference the top {how.k} were kept"
    lines["same_top"] = f"{100 * present(quality.same_top):.3f} %"
    lines |= {name: _row(name, **row) for name, row in (quality.llama_perplexity or {}).items()}
    lines |= {f"kld at {_bin(part)} tokens": f"{part.mean:.3e} nats" for part in quality.kld_by_position or ()}
    by_confidence = quality.kld_by_confidence or ()
    return lines | {f"kld at top p {_bin(part)}": f"{part.mean:.3e} nats" for part in by_confidence}


def _row(name: str, value: float | None, error: float | None) -> str | None:
    """As llama-perplexity prints it: shares and changes of probability in percent."""
    if value is None:
        return None
    percent = name.endswith("p") or name.startswith("Cor")
    scale, sign = (100, " %") if percent else (1, "")
    return f"{scale * value:10.6f}{'' if error is None else f' ± {scale * error:.6f}'}{sign}"


def _bin(part: KLDBin) -> str:
    return f"{part.low:g}-{part.high:g}"


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
