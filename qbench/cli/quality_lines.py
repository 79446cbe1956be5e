"""What `qbench eval` prints for people: each figure with its interval, names as in the JSON or as llama.cpp's."""

from typing import Any

from qbench.cli.output import print_pairs, readable_bytes
from qbench.compute import FAST


def print_quality(result: dict[str, Any]) -> None:
    lines = {"model": result["model"]}
    if result.get("compute", FAST) != FAST:
        lines["compute"] = result["compute"]
    for told in (result.get("protocols") or {"": result}).values():
        lines[told["protocol"]["name"]] = _perplexity(told)
    lines["bits_per_weight"] = f"{result['bits_per_weight']:.4f}"
    if "logits" in result:
        lines |= _kept(result["logits"])
    if result.get("kld"):
        lines |= _divergence(result)
    print_pairs(lines)


def _perplexity(told: dict[str, Any]) -> str | None:
    if told["perplexity"] is None:
        return None
    interval, protocol = told["perplexity_interval"], told["protocol"]
    spread = f"95 % {interval[0]:.4f} to {interval[1]:.4f}, " if interval else ""
    unit = f"a {protocol['unit']}, " if "unit" in protocol else ""
    extra = f", {told['bits_per_byte']:.4f} bits a byte" if "bits_per_byte" in told else ""
    counted = f"{unit}{spread}{told['num_tokens']:,} tokens{extra}"
    return f"perplexity {told['perplexity']:.4f}  ({counted}; {protocol['hash'][:12]})"


def _kept(logits: dict[str, Any]) -> dict[str, str]:
    how = logits["mode"] if logits["k"] is None else f"{logits['mode']}, k = {logits['k']}"
    smaller = logits["fp16_bytes"] / logits["bytes"]
    against = f"{smaller:.1f}x smaller" if smaller >= 1 else f"{1 / smaller:.1f}x larger"
    return {
        "logits": logits["file"],
        "kept": f"{how}: {readable_bytes(logits['bytes'])}, {against} than fp16 logits",
    }


def _divergence(result: dict[str, Any]) -> dict[str, str]:
    """KLD of the first protocol: our interval, then llama-perplexity's table, whose ± takes tokens for independent"""
    interval, how = result["kld_interval"], result["kld_reference"]
    spread = f"  (95 % {interval[0]:.3e} to {interval[1]:.3e})" if interval else ""
    lines = {"kld mean": f"{result['kld']['mean']:.3e} nats{spread}"}
    if how["mode"] == "top-k":
        off = f"± {how['error_nats']:.1e} nats expected, {how['error_bound_nats']:.1e} at most"
        lines["kld error"] = f"{off}: of the reference the top {how['k']} were kept"
    lines["same_top"] = f"{100 * result['same_top']:.3f} %"
    lines |= {name: _row(name, **row) for name, row in (result["llama_perplexity"] or {}).items()}
    lines |= {f"kld at {_bin(part)} tokens": f"{part['mean']:.3e} nats" for part in result["kld_by_position"]}
    by_confidence = result["kld_by_confidence"]
    return lines | {f"kld at top p {_bin(part)}": f"{part['mean']:.3e} nats" for part in by_confidence}


def _row(name: str, value: float | None, error: float | None) -> str | None:
    """As llama-perplexity prints it: shares and changes of probability in percent."""
    if value is None:
        return None
    percent = name.endswith("p") or name.startswith("Cor")
    scale, sign = (100, " %") if percent else (1, "")
    return f"{scale * value:10.6f}{'' if error is None else f' ± {scale * error:.6f}'}{sign}"


def _bin(part: dict[str, Any]) -> str:
    return f"{part['low']:g}-{part['high']:g}"
