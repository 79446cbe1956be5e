"""Tables of records of `qbench kernels` and `race --vs`: kernels next to their peers, models next to llama.cpp."""

from statistics import median

from qbench.measure.records.kept_kinds import (
    Contender,
    KernelCase,
    KernelMetrics,
    VersusCase,
    VersusMetrics,
    VersusRatio,
)
from qbench.measure.records.record import Record
from qbench.measure.speed_figures import Spread
from qbench.report.recorded import RULE, judged_ratio, ratio_of_rounds, recorded, rows_of
from qbench.words.read import ROOFLINE_LEGEND

OURS, ABSENT = "qbench", "n/a"
OLDER = " *"  # after a share of the roofline by another definition
Cells = tuple[list[str], list[list[str]], list[bool]]  # the heading, rows of as many texts, which columns are numbers
# Prefix of the names of ops -> title of the table of such kernels.
FAMILIES = {
    "linear_": "Linears",
    "moe_": "Experts",
    "attention_": "Attention",
    "latents_": "Attention over latents",
    "encode_": "Encoders",
    "decode_": "Decoders",
    "g": "GPTQ's steps",  # gram, gptq_factor, gptq_feedback
}


def family(record: Record) -> str:
    """ "" for a row that is no kernel's"""
    if not isinstance(record.case, KernelCase):
        return ""
    op = record.case.op
    return next((title for prefix, title in FAMILIES.items() if op.startswith(prefix)), "Others")


def kernel_cells(records: list[Record]) -> Cells:
    """One row per kernel, shape and number of tokens; a column for every peer that any of them had.

    Columns that would be n/a in every row are left out.
    """
    rows = rows_of(records, KernelCase, KernelMetrics)
    peers = list(dict.fromkeys(name for _, metrics in rows for name in recorded(metrics.contenders) if name != OURS))
    heading = ["kernel", "shape", "M", "ms", "rate", "of the roofline", "ran", *peers]
    cells = []
    for case, metrics in rows:
        contenders = recorded(metrics.contenders)
        figures = kernel_figures(contenders[OURS], metrics.bound_by, OLDER if is_older_share(metrics) else "")
        others = [peer_cell(contenders[OURS], contenders.get(name)) for name in peers]
        tokens = ABSENT if case.tokens is None else str(case.tokens)
        cells.append([case.op, case.shape, tokens, *figures, *others])
    kept = [i for i, column in enumerate(zip(*cells, strict=True)) if set(column) != {ABSENT}]
    numeric = [False, False, True, True, True, True, False] + [True] * len(peers)
    return [heading[i] for i in kept], [[row[i] for i in kept] for row in cells], [numeric[i] for i in kept]


def kernel_figures(ours: Contender, bound_by: str | None, mark: str = "") -> list[str]:
    """Time, rate of the bytes or operations that bound it, the share of that bound, and the implementation.

    mark   after the share
    """
    if ours.ms is None:
        return [ABSENT] * 4
    rate, share = ABSENT, ABSENT
    if bound_by is not None:
        rate = f"{ours.gb_s:.1f} GB/s" if bound_by == "bytes" else f"{ours.tera_ops:.3f} TOPS"
        share = percent(ours.share) + mark
    return [f"{ours.ms:.3f}", rate, share, ours.how or ABSENT]


def is_older_share(metrics: KernelMetrics) -> bool:
    """Whether the share divides by the larger of two bandwidths, one read before the case and one after it."""
    of_rounds = recorded(metrics.contenders)[OURS].samples_ms or []
    bandwidths = metrics.bandwidth_bytes_per_s or []
    return metrics.bound_by == "bytes" and len(bandwidths) != len(of_rounds)


def percent(share: float | None) -> str:
    """ "61 %"; of more than all no figure, as the peak was then measured in a slow spell"""
    if share is None:
        return ABSENT
    return f"{100 * share:.0f} %" if share < 1.005 else "over 100 %"


def peer_cell(ours: Contender, entry: Contender | None) -> str:
    """ "0.412 ms, 1.31x [1.25, 1.40]": its time, and how many times as fast ours is, with the 95 % interval"""
    if entry is None or entry.ms is None:
        return ABSENT
    if ours.ms is None:
        return f"{entry.ms:.3f} ms"
    if not ours.samples_ms or not entry.samples_ms or len(ours.samples_ms) != len(entry.samples_ms):
        return f"{entry.ms:.3f} ms, {judged_ratio(entry.ms / ours.ms, None, None, 'x')}"
    ratio = ratio_of_rounds(ours.samples_ms, entry.samples_ms)
    return f"{entry.ms:.3f} ms, {judged_ratio(ratio.value, ratio.low, ratio.high, 'x')}"


KERNEL_NOTE = (
    "M tokens; ms: median of the rounds' medians; ratio: how many times as fast as the peer, over rounds in which both "
    f"took turns; {RULE}; of the roofline: of the read bandwidth or of the peak of its operations, whichever bounds "
    f"the kernel; {ROOFLINE_LEGEND}; {OLDER.strip()} of older records: at the larger of two bandwidths, read before "
    "and after the case"
)


def versus_cells(records: list[Record]) -> Cells:
    """One row per file and test: tokens per second of both, the ratio, and our code that ran."""
    speeds = ("qbench tok/s", "llama.cpp tok/s", "ratio", "of the roofline", "read GB/s")
    heading = ["model", "test", "KV cache", *speeds, "ran"]
    cells = []
    for case, metrics in rows_of(records, VersusCase, VersusMetrics):
        name, roofline = case.model.rpartition("/")[2], recorded(metrics.roofline)
        kv = f"{metrics.kv_bits:.3g} bits, {recorded(metrics.peer).kv_format}"
        bandwidths = roofline.bandwidth_bytes_per_s
        bandwidth = f"{median(bandwidths) / 1e9:.1f}" if bandwidths else ABSENT
        for phase in ("pp", "tg"):
            if not getattr(case, phase):
                continue
            test = f"{phase}{getattr(case, phase)}" + (f"@{case.depth}" if case.depth else "")
            spreads = [recorded(recorded(side).spread)[f"{phase}_tok_s"] for side in (metrics.ours, metrics.theirs)]
            sides = [with_range(recorded(spread), 1) for spread in spreads]
            shares = [percent(recorded(side)[phase]) for side in (roofline.ours, roofline.theirs)]
            ran = ABSENT if metrics.ran is None else ", ".join(map(short_name, metrics.ran[phase]))
            ratio = with_interval(recorded(recorded(metrics.ratio)[phase]))
            cells.append([name, test, kv, *sides, ratio, " and ".join(shares), bandwidth, ran])
    return heading, cells, [*3 * [False], *len(speeds) * [True], False]


def builds(records: list[Record]) -> list[str]:
    """ "llama.cpp: llama-cpp-python 0.3.36, built with AVX512_VNNI, AMX_INT8", one line per build"""
    peers = [recorded(metrics.peer) for _, metrics in rows_of(records, VersusCase, VersusMetrics)]
    return list(dict.fromkeys(f"llama.cpp: {peer.build}" for peer in peers))


VERSUS_NOTE = (
    "tokens per second: median [least, greatest] of the repetitions; ratio: median of the pairs; "
    f"{RULE}; of the roofline: qbench's share and llama.cpp's; {ROOFLINE_LEGEND}; read GB/s: the median bandwidth of "
    "the rounds, and compare speeds of two rows only if theirs are close; "
    "ran: int8x256 rounds K-quants to int8 with one scale for 256 weights"
)


def short_name(impl: str) -> str:
    """ "q4_k int8x256" of "cpu-q4_k[avx512_vnni int8x256]" """
    head, _, inside = impl.removeprefix("cpu-").partition("[")
    return " ".join([head, *inside.removesuffix("]").split(" ", 1)[1:]])


def with_range(spread: Spread, digits: int) -> str:
    return f"{spread.median:.{digits}f} [{spread.min:.{digits}f}, {spread.max:.{digits}f}]"


def with_interval(ratio: VersusRatio) -> str:
    """ "1.31 [1.25, 1.40]", "undecided: 1.02 [0.97, 1.07]", "not measured well enough [0.21, 18.25]" """
    low, high = ratio.interval or (None, None)
    return judged_ratio(recorded(ratio.median), low, high)
