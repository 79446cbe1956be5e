"""Tables of KV-cache policies: quality against the bytes that the cache holds and against decode speed."""

from collections.abc import Callable, Iterable, Sequence

from qbench.comparison.kept_launches import KeptLaunches, row_of
from qbench.comparison.text import probability
from qbench.measure.records.record import Record
from qbench.report.extra_columns import SHARES
from qbench.report.kinds import origin
from qbench.report.launches import OF_LAUNCHES, speed_text
from qbench.report.policy_rows import (
    PolicyRow,
    PolicyTests,
    best_of_budget,
    fronts,
    policy_rows,
    policy_tests,
    setting,
)
from qbench.report.recorded import RULE, judged_ratio, recorded
from qbench.statistics.estimate import ALPHA
from qbench.statistics.launches import launched_ratio
from qbench.words.read import count, markdown_grid

MISSING = "n/a"
MARKS = {(False, False): "", (True, False): "bytes", (False, True): "speed", (True, True): "bytes speed"}
NUM_TEXTS = 3  # Pareto mark, policy and budget; the other columns are numbers
SELF = (MISSING, "reference", "1")  # cells of a column that compares no row with another


def policies_markdown(records: Iterable[Record], launches: KeptLaunches | None = None) -> str:
    """One table per model, recipe, KV format and cache, sorted by the bytes held; "" without a policy that evicts.

    records    the latest of each case of a sweep that was measured
    launches   of the same records
    """
    groups: dict[tuple[object, ...], list[PolicyRow]] = {}
    for row in policy_rows(records):
        groups.setdefault((*setting(row.judged), row.protocol, row.metrics.reference), []).append(row)
    return "\n".join(filter(None, (_group(rows, launches or {}) for rows in groups.values())))


def _group(rows: Sequence[PolicyRow], launches: KeptLaunches) -> str:
    """The tables of rows that compare. Their Pareto marks count the rows of all these tables."""
    tables: dict[tuple[str, ...], list[PolicyRow]] = {}
    for row in sorted(rows, key=lambda row: row.speed.kv_bytes_held or 0):
        tables.setdefault(_title(row), []).append(row)
    shown = {title: own for title, own in sorted(tables.items()) if not all(row.is_full for row in own)}
    rows = [row for own in shown.values() for row in own]
    if not rows:
        return ""
    marks = iter(fronts(rows))
    texts = [_table(title, own, [next(marks) for _ in own], launches) for title, own in shown.items()]
    return "\n".join([*texts, _footer(rows)])


def _title(row: PolicyRow) -> tuple[str, ...]:
    case = row.case
    parts = [case.model, case.recipe or "as stored", case.kv_format or "f32"]
    parts += [] if case.cache == "dynamic" else [f"cache {case.cache}"]
    parts += [] if case.prefill_chunk is None else [f"prompts in chunks of {case.prefill_chunk}"]
    return tuple(parts)


def _table(
    title: tuple[str, ...], rows: Sequence[PolicyRow], marks: Sequence[tuple[bool, bool]], launches: KeptLaunches
) -> str:
    full = next((row for row in rows if row.is_full and row.case.kv_ram is None), None)
    tests, best = policy_tests(rows), best_of_budget(rows)
    columns: list[tuple[str, Callable[[int], str]]] = [
        ("Pareto", lambda i: MARKS[marks[i]]),
        ("policy", lambda i: rows[i].policy),
        ("budget", lambda i: rows[i].budget),
        ("held MB", lambda i: megabytes(rows[i].speed.kv_bytes_held)),
        ("of full %", lambda i: _share_of_full(full, rows[i])),
        ("KV RAM MB", lambda i: megabytes(rows[i].case.kv_ram)),
        ("disk MB/step", lambda i: megabytes(rows[i].speed.kv_bytes_read)),
        ("peak MB", lambda i: megabytes(rows[i].peak_bytes)),
        ("read", lambda i: _tokens_read(rows[i])),
        ("mean KLD [95 %]", lambda i: mean_kld_text(rows[i])),
        ("KLD against full, p", lambda i: _against_full(rows, tests, i)),
        ("against best of budget, p", lambda i: _against_best(rows, tests, best, i)),
        ("same top %", lambda i: _percent(rows[i].metrics.figure("same_top"))),
        *(_task_column(rows, name) for name in dict.fromkeys(n for row in rows for n in row.tasks)),
        (f"{work_text(rows)} tok/s [95 %]", lambda i: speed_text(rows[i].timed.figures, "tg_tok_s") or MISSING),
        ("speed / full [95 %]", lambda i: speed_ratio(full, rows[i], launches)),
    ]
    cells = [[text(i) for _, text in columns] for i in range(len(rows))]
    shown = [k for k in range(len(columns)) if k < NUM_TEXTS or any(line[k] not in SELF for line in cells)]
    grid = markdown_grid(
        [[columns[k][0] for k in shown], *([line[k] for k in shown] for line in cells)],
        [k >= NUM_TEXTS for k in shown],
    )
    return f"**{', '.join(title)} on {rows[0].judged.machine.cpu}**\n\n{grid}\n\n{_verdicts(rows, tests)}\n"


def _tokens_read(row: PolicyRow) -> str:
    return MISSING if row.speed.tokens_read is None else f"{row.speed.tokens_read:.0f}"


def _verdicts(rows: Sequence[PolicyRow], tests: PolicyTests) -> str:
    """One sentence below a table: the basis of its verdicts, or the reason for their absence."""
    if not tests.num_tests:
        return "No verdicts: no two rows of this table keep the KLD of enough windows for a paired test."
    blocks = recorded(recorded(rows[0].quality).blocks)
    return (
        f"Verdicts: paired over {count(len(blocks.tokens or ()), blocks.unit or 'block')}; p by Holm over "
        f"{count(tests.num_tests, 'test')} (each policy against full, and all pairs at one budget); unclear: p >= 0.05."
    )


def _footer(rows: Sequence[PolicyRow]) -> str:
    case, machine = rows[0].case, rows[0].judged.machine
    quality = rows[0].quality
    protocol = quality.protocol if quality else None
    parts = [f"protocol {protocol.name} ({protocol.hash})"] if protocol else []
    parts += [f"{count(case.threads or 1, 'thread')} of {count(machine.cores or 1, 'core')}"]
    parts += [f"batch {case.batch}"] if case.batch > 1 else []
    told = (
        "Pareto bytes: no other row of these tables has a lower mean KLD with fewer bytes held. Pareto speed: no other "
        f"row has a lower mean KLD at a higher decode speed. Speeds: {OF_LAUNCHES}; {RULE}."
    )
    return f"{told}\n\n{'; '.join([*parts, origin([row.judged for row in rows])])}.\n"


def mean_kld_text(row: PolicyRow) -> str:
    if row.mean_kld is None:
        return MISSING
    ends = recorded(row.quality).kld_interval
    return f"{row.mean_kld:.2e}" + (f" [{ends[0]:.2e}, {ends[1]:.2e}]" if ends else "")


def _against_full(rows: Sequence[PolicyRow], tests: PolicyTests, i: int) -> str:
    if rows[i].is_full:
        return "reference"
    full = next((k for k, row in enumerate(rows) if row.is_full), None)
    return MISSING if full is None else _verdict(tests, full, i)


def _against_best(rows: Sequence[PolicyRow], tests: PolicyTests, best: dict[str, int], i: int) -> str:
    if rows[i].budget not in best:
        return MISSING
    return "best" if best[rows[i].budget] == i else _verdict(tests, best[rows[i].budget], i)


def _verdict(tests: PolicyTests, a: int, b: int) -> str:
    """ "worse 0.003" of B against A; "unclear 0.31" if p is not below 0.05"""
    swapped = (a, b) not in tests.estimates
    pair = (b, a) if swapped else (a, b)
    p_value = tests.p_values.get(pair)
    if p_value is None:
        return MISSING
    if p_value >= ALPHA:
        word = "unclear"
    else:
        word = "worse" if (tests.estimates[pair].value > 0) != swapped else "better"
    return f"{word} {probability(p_value)}"


def _task_column(rows: Sequence[PolicyRow], name: str) -> tuple[str, Callable[[int], str]]:
    entries = [row.tasks.get(name) for row in rows]
    is_share = all(entry is None or entry.metric in SHARES for entry in entries)

    scale, pattern = (100, ".1f") if is_share else (1, ".4g")
    has_interval = any(entry and entry.interval for entry in entries)

    def text(i: int) -> str:
        entry = entries[i]
        if entry is None or entry.value is None:
            return MISSING
        ends = [f"{scale * end:{pattern}}" for end in entry.interval or ()]
        return f"{scale * entry.value:{pattern}}" + (f" [{', '.join(ends)}]" if ends else "")

    return f"{name}{' %' * is_share}{' [95 %]' * has_interval}", text


def work_text(rows: Sequence[PolicyRow]) -> str:
    """ "tg32@896" """
    work = next((row.timed.model_case.speed for row in rows if row.timed.model_case.speed), None)
    return f"tg{work.tg}" + (f"@{work.depth}" if work.depth else "") if work else "tg"


def speed_ratio(full: PolicyRow | None, row: PolicyRow, launches: KeptLaunches) -> str:
    """Decode speed over that of the full cache, by launches of both: they were not measured in turn."""
    if full is None or row.speed.tg_tok_s is None or full.speed.tg_tok_s is None:
        return MISSING
    if row is full:
        return "1"
    if not row.timed.machine.runs_like(full.timed.machine):
        return MISSING
    ours, theirs = (launches.get(row_of(one.timed), {}).get("tg_tok_s") for one in (full, row))
    if ours is None or theirs is None:
        return "not measured well enough"
    found = launched_ratio(ours, theirs)
    return judged_ratio(found.value, found.low, found.high)


def _share_of_full(full: PolicyRow | None, row: PolicyRow) -> str:
    held, whole = row.speed.kv_bytes_held, full and full.speed.kv_bytes_held
    return f"{100 * held / whole:.1f}" if held is not None and whole else MISSING


def megabytes(size: float | None) -> str:
    return MISSING if size is None else f"{size / 1e6:.2f}"


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.2f}"
