"""The table of what `qbench mla` kept: each way to attend by latent attention, by new tokens, tokens held and batch."""

from typing import Any

from qbench.report.speeds import Cells


def latent_cells(records: list[dict[str, Any]]) -> Cells:
    """One row a mode of each case; * marks what the runtime takes."""
    heading = ["new", "held", "batch", "mode", "cache B/token", "Mflop/token", "ms [range]", "memory MB"]
    cells = []
    for record in sorted(records, key=lambda record: [record["case"][name] for name in ("tokens", "context", "batch")]):
        case, metrics = record["case"], record["metrics"]
        samples = metrics["samples_ms"]
        cells.append(
            [
                *(str(case[name]) for name in ("tokens", "context", "batch")),
                case["mode"] + (" *" if metrics["picked"] else ""),
                f"{metrics['kv_bytes_per_token']:.0f}",
                f"{metrics['flop_per_token'] / 1e6:.1f}",
                f"{metrics['ms']:.3f} [{min(samples):.3f}, {max(samples):.3f}]",
                f"{metrics['peak_bytes'] / 1e6:.1f}",
            ]
        )
    return heading, cells, [True, True, True, False, True, True, True, True]
