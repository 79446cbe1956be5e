"""The table of what `qbench engine` kept: many requests at once, the engine beside other ways to run them."""

from typing import Any

from qbench.report.speeds import Cells


def serving_cells(records: list[dict[str, Any]]) -> Cells:
    """One row a contender of each workload; ratios are how many times as fast the engine is, range of the rounds."""
    heading = ["model", "KV", "requests", "at once", "run by", "new tok/s", "computed", "first token s"]
    heading += ["engine is", "same text"]
    cells = []
    for record in records:
        case = record["case"]
        about = [case["model"].rpartition("/")[2], case["kv_format"] or "float32", case["workload"], str(case["batch"])]
        for name, figures in record["metrics"]["contenders"].items():
            cells.append([*about, name, *contender_figures(figures)])
    return heading, cells, [False, False, False, True, False, True, True, True, True, True]


def contender_figures(figures: dict[str, Any]) -> list[str]:
    ratio = figures["ratio"]
    ends = f" [{ratio['min']:.2f}, {ratio['max']:.2f}]" if len(figures["samples"]) > 1 else ""
    shown = [f"{figures['tok_s']:.1f}", str(figures["computed"]), f"{figures['ttft_ms'] / 1e3:.2f}"]
    return [*shown, f"{ratio['median']:.2f}x{ends}", f"{100 * figures['same_text']:.0f} %"]
