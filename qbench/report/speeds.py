"""Tables of what `qbench kernels` and `qbench bench --vs` kept: kernels beside their peers, models beside llama.cpp."""

from typing import Any

OURS = "qbench"
Cells = tuple[list[str], list[list[str]], list[bool]]  # the heading, rows of as many texts, which columns are numbers


def kernel_cells(records: list[dict[str, Any]]) -> Cells:
    """One row a kernel, shape and number of tokens; a column for every peer that any of them had."""
    peers = list(dict.fromkeys(name for record in records for name in record["metrics"]["contenders"] if name != OURS))
    heading = ["kernel", "shape", "M", "ms", "GB/s", "TOPS", "of the roofline", "ran", *peers]
    cells = []
    for record in records:
        case, metrics = record["case"], record["metrics"]
        ours = metrics["contenders"][OURS]
        figures = ["n/a"] * 5 if "ms" not in ours else kernel_figures(ours, metrics["bound_by"])
        others = [peer_cell(metrics["contenders"].get(name)) for name in peers]
        cells.append([case["op"], case["shape"], str(case["tokens"]), *figures, *others])
    return heading, cells, [False, False, True, True, True, True, True, False] + [True] * len(peers)


def kernel_figures(ours: dict[str, Any], bound_by: str) -> list[str]:
    share = f"{100 * ours['share']:.0f} % ({bound_by})"
    return [f"{ours['ms']:.3f}", f"{ours['gb_s']:.1f}", f"{ours['tera_ops']:.3f}", share, ours["how"]]


def peer_cell(entry: dict[str, Any] | None) -> str:
    """ "0.412 ms (1.31x)": its time, and how many times as fast ours is"""
    if not entry or "ms" not in entry:
        return "n/a"
    return f"{entry['ms']:.3f} ms" + (f" ({entry['ratio']['median']:.2f}x)" if "ratio" in entry else "")


def versus_cells(records: list[dict[str, Any]]) -> Cells:
    """One row a file and test: tokens a second of both, ranges of the repetitions, and the ratio."""
    heading = ["model", "test", "keys and values", "qbench tok/s", "llama.cpp tok/s", "ratio", "of the roofline"]
    cells = []
    for record in records:
        case, metrics = record["case"], record["metrics"]
        name = case["model"].rpartition("/")[2]
        kv = f"{metrics['kv_bits']:.3g} bits, {metrics['llama.cpp']['kv']}"
        for phase in ("pp", "tg"):
            if not case[phase]:
                continue
            test = f"{phase}{case[phase]}" + (f"@{case['depth']}" if case["depth"] else "")
            sides = [with_range(metrics[side]["spread"][f"{phase}_tok_s"], 1) for side in ("ours", "theirs")]
            shares = [f"{100 * metrics['roofline'][side][phase]:.0f} %" for side in ("ours", "theirs")]
            cells.append([name, test, kv, *sides, with_range(metrics["ratio"][phase], 2), " and ".join(shares)])
    return heading, cells, [False, False, False, True, True, True, True]


def with_range(spread: dict[str, float], digits: int) -> str:
    return f"{spread['median']:.{digits}f} [{spread['min']:.{digits}f}, {spread['max']:.{digits}f}]"
