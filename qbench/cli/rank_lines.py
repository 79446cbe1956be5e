"""`qbench bench --ranks` and its lines for people."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qbench.cli.bench_lines import PHASES, milliseconds, test_name, throughput
from qbench.cli.output import print_result, readable_bytes
from qbench.cli.progress import progress_bar
from qbench.cli.rank_options import join
from qbench.run.options import RunOptions
from qbench.run.work import SpeedWork
from quant.present import present

if TYPE_CHECKING:
    from qbench.speed.rank_bench import RankSpeed


def print_ranks(model: str, cases: Sequence[SpeedWork], options: RunOptions, as_json: bool) -> None:
    """One object, or one block of lines, for each case."""
    options = join(model, options)
    from qbench.speed.rank_bench import rank_bench

    with progress_bar(f"bench {model}") as update:
        for number, row in enumerate(rank_bench(model, cases, options, progress=update)):
            print_result(row, readable, as_json, number)


def readable(row: "RankSpeed") -> dict[str, str | None]:
    facts, figures, layout = row.facts, row.figures, row.layout
    return {
        "model": f"{facts.model}" + (f" as {facts.recipe}" if facts.recipe else ""),
        "ranks": f"{layout.num_ranks} ({layout}), {facts.threads} thread(s) each, linked by {row.link}",
        **{test_name(row.sizes, phase): throughput(figures, None, phase) for phase in PHASES},
        "ttft, tpot": f"{milliseconds(figures.ttft_ms)}, {milliseconds(figures.tpot_ms)}",
        **{f"{phase} traffic": traffic(row, phase) for phase in row.exchanges},
        **{f"{phase} bubble": bubble(row, phase) for phase in row.exchanges if row.exchanges[phase].bubble is not None},
        **{
            f"{phase} experts": experts(row, phase)
            for phase in row.exchanges
            if row.exchanges[phase].experts is not None
        },
        "weights": " + ".join(map(readable_bytes, row.weight_bytes)),
        "kv cache": " + ".join(map(readable_bytes, row.kv_bytes)),
        "peak_rss": " + ".join(map(readable_bytes, row.peak_rss_bytes)),
    }


def traffic(row: "RankSpeed", phase: str) -> str:
    """ "8.19 kB a token in 16 messages a pass (formula: the same), 7 % of the time" """
    found = row.exchanges[phase]
    counted = (found.bytes_per_token, found.messages_per_pass)
    formula = (found.expected_bytes_per_token, found.expected_messages_per_pass)
    told = "the same" if counted == formula else f"{formula[0]:.1f} B, {formula[1]:g} messages"
    return (
        f"{readable_bytes(counted[0])} per token, {counted[1]:g} messages per pass (formula: {told}), "
        f"{100 * found.share:.0f} % of the time"
    )


def experts(row: "RankSpeed", phase: str) -> str:
    """ "90 + 70 pairs of token and expert (the largest: 1.12 times the mean)" """
    load = present(row.exchanges[phase].experts)
    pairs = " + ".join(map(str, load.pairs))
    return f"{pairs} pairs of token and expert (the largest: {load.skew:.2f} times the mean)"


def bubble(row: "RankSpeed", phase: str) -> str:
    """ "23 % of the stages' time, 21 % in messages (formula: 20 % for 4 per pass, 22 % for the stages' own times)" """
    found = present(row.exchanges[phase].bubble)
    formula = f"{100 * found.expected:.0f} % for {found.micro_batches:g} per pass"
    if found.unequal is not None:
        formula += f", {100 * found.unequal:.0f} % for the stages' own times"
    messages = "" if found.exchanged is None else f", {100 * found.exchanged:.0f} % in messages"
    return f"{100 * found.share:.0f} % of the stages' time{messages} (formula: {formula})"
