"""The columns of tables for people, as data: the Markdown and the page write a value by the same row of this table."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from qbench.report.extra_columns import ENDS, OVERHEAD, PROTOCOL, SHARES, TASK, metric_of
from qbench.report.launches import FREEDOM, HIGH, LAUNCHES, LOW, PHASES, SPREAD
from qbench.report.table import Table, is_missing
from qbench.run.axes import AXES, IN_TABLES, ON_PAGE, Axis, Heading
from qbench.words.read import ROOFLINE_LEGEND
from quant.errors import InputError

MISSING = "n/a"
INTERVAL = "95 %"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: which value of a row, and how it is written. `assets/format.js` reads the same fields.

    kind     "text"; "fixed": `digits` after the point; "scientific": 3 digits and a power of ten, as a divergence spans
             many; "speed": one digit after the point below 100, no digit above
    scale    factor of a value before it is written
    ends     the columns of its low and high end, which are in brackets, named `ends_name`
    """

    key: str
    heading: str
    kind: str = "fixed"
    digits: int = 2
    scale: float = 1.0
    ends: tuple[str, str] | None = None
    ends_name: str = ""
    in_markdown: bool = True
    on_page: bool = True  # before a reader picks columns
    meaning: str = ""

    @property
    def numeric(self) -> bool:
        return self.kind != "text"

    @property
    def full_heading(self) -> str:
        return f"{self.heading} [{self.ends_name}]" if self.ends else self.heading

    def cells(self, columns: Mapping[str, list[Any]]) -> list[str]:
        """A text per row: the value, with its ends if they are known."""
        values, write = columns[self.key], self._writer()
        if not self.ends:
            return [MISSING if value is None or value != value else write(value) for value in values]
        rows = zip(values, *(columns[end] for end in self.ends), strict=True)
        return [self._with_ends(write, *row) for row in rows]

    def _writer(self) -> Callable[[Any], str]:
        """Writes one value: chosen once per column, as a long table has a million cells."""
        scale, pattern = self.scale, f"%.{self.digits}f"
        if self.kind == "text":
            return str
        if self.kind == "fixed":
            return lambda value: pattern % (value * scale)
        if self.kind == "scientific":
            return lambda value: "%.2e" % (value * scale) if value else "0"
        return lambda value: f"{value * scale:.{_speed_digits(value * scale)}f}"

    def _with_ends(self, write: Callable[[Any], str], value: Any, low: Any, high: Any) -> str:
        if is_missing(value):
            return MISSING
        if is_missing(low) or is_missing(high):
            return write(value)
        if self.kind == "speed":  # the ends have as many digits as the value
            numbers = value * self.scale, low * self.scale, high * self.scale
            return ("%.1f [%.1f, %.1f]" if _speed_digits(numbers[0]) else "%.0f [%.0f, %.0f]") % numbers
        return f"{write(value)} [{write(low)}, {write(high)}]"


def _speed_digits(value: float) -> int:
    return int(value < 100)


def _text(key: str, heading: str, **shown: Any) -> Column:
    return Column(key, heading, "text", **shown)


class Places(TypedDict):
    """Where a column is shown. Fields of Column."""

    in_markdown: bool
    on_page: bool


HIDDEN: Places = {"in_markdown": False, "on_page": False}
NATS = "Kullback-Leibler divergence of the next-token distribution from the unquantized model's, in nats: "


def _axis(axis: Axis, heading: Heading) -> Column:
    return Column(
        heading.column or axis.name,
        heading.text,
        "fixed" if axis.kind is int or heading.digits else "text",
        digits=heading.digits,
        scale=heading.scale,
        meaning=axis.meaning,
        **HIDDEN,
    )


OF_AXES = {axis.name: _axis(axis, axis.heading) for axis in AXES if axis.heading is not None}
COLUMNS = (
    replace(OF_AXES["recipe"], in_markdown=True, on_page=True),
    OF_AXES["model"],
    _text("family", "family", **HIDDEN, meaning="What rounds the weights."),
    *(column for name, column in OF_AXES.items() if name not in ("recipe", "model")),
    Column(
        "memory_limit_bytes",
        "limit MiB",
        digits=0,
        scale=2**-20,
        **HIDDEN,
        meaning="Memory limit of the process.",
    ),
    Column(
        "bits_per_weight",
        "bits/weight",
        meaning="All stored bits, scales included, over all weights, embedding and head included.",
    ),
    Column("size_bytes", "size MB", scale=1e-6, meaning="Bytes of the weights on disk."),
    Column(
        "perplexity",
        "perplexity",
        digits=3,
        ends=("perplexity_low", "perplexity_high"),
        ends_name=INTERVAL,
        meaning="Under the row's protocol, with a 95 % interval over blocks of text. The interval says how well this "
        "text stands for all text; two rows are told apart by their paired difference, which is far narrower.",
    ),
    Column(
        "kld_mean",
        "mean KLD",
        "scientific",
        ends=("kld_low", "kld_high"),
        ends_name=INTERVAL,
        meaning=NATS + "the mean over tokens, with its 95 % interval.",
    ),
    Column("kld_median", "median KLD", "scientific", **HIDDEN),
    Column("kld_p90", "p90 KLD", "scientific", **HIDDEN),
    Column("kld_p99", "p99 KLD", "scientific", on_page=False, meaning=NATS + "one token in a hundred exceeds it."),
    Column("kld_p999", "p99.9 KLD", "scientific", **HIDDEN),
    Column("kld_max", "max KLD", "scientific", **HIDDEN),
    Column("same_top", "same top %", scale=100, meaning="Tokens where both models rank the same next token first."),
    Column(
        "pp_tok_s",
        "pp tok/s",
        "speed",
        meaning="Tokens per second when reading a prompt, after @ at that depth: median of one process, or the mean "
        "over several processes with its 95 % interval. A speed of one process has no interval.",
    ),
    Column(
        "tg_tok_s",
        "tg tok/s",
        "speed",
        meaning="Tokens per second when writing one by one, as above.",
    ),
    Column("ttft_ms", "TTFT ms", **HIDDEN, meaning="Time to the first token."),
    Column("tpot_ms", "TPOT ms", digits=3, **HIDDEN, meaning="Time per output token after the first."),
    Column(
        "roofline_pp",
        "pp roofline %",
        digits=0,
        scale=100,
        on_page=False,
        meaning="Of the bound by operations, at the strongest unit of the machine that could do each, or by reading "
        f"the weights; {ROOFLINE_LEGEND}. "
        "`machine_peaks` of the record tells when the operations were measured.",
    ),
    Column(
        "roofline_tg",
        "tg roofline %",
        digits=0,
        scale=100,
        on_page=False,
        meaning=f"Of the bound by bytes or by operations; {ROOFLINE_LEGEND}. "
        "None if the bytes fit into the processor's cache, or if the time was less than the bound.",
    ),
    Column(
        "peak_rss_bytes",
        "peak RSS MB",
        digits=0,
        scale=1e-6,
        meaning="The most memory that the measuring process held, Python and libraries included, but for pages "
        "of theirs that a sweep's process shares with the one it was forked from and does not touch.",
    ),
    Column("peak_device_bytes", "GPU MB", digits=0, scale=1e-6, **HIDDEN, meaning="The most that its tensors held."),
    Column("predicted_bytes", "predicted MB", scale=1e-6, **HIDDEN, meaning="Weights, KV cache, workspace."),
    Column("kv_bytes_per_token", "KV bytes/token", digits=0, **HIDDEN),
    Column("quantize_seconds", "quantize s", digits=1, on_page=False, meaning="Making the file, calibration included."),
    Column("quantize_peak_rss_bytes", "quantize MB", digits=0, scale=1e-6, on_page=False),
    Column("wall_seconds", "case s", digits=1, **HIDDEN, meaning="From the start of the measuring process to its end."),
    Column(
        OVERHEAD,
        "overhead %",
        digits=1,
        scale=100,
        **HIDDEN,
        meaning="Of that, what a script that loads the model and runs the same passes would not take: starting the "
        "process, reading the text, statistics. Of rows without machine peaks s, measuring those too.",
    ),
    Column(
        "machine_peaks_seconds",
        "machine peaks s",
        digits=1,
        **HIDDEN,
        meaning="Measuring what this machine can do at most, in the first case of a sweep and where that has changed.",
    ),
    Column(
        "prefill_blocks",
        "blocks %",
        scale=100,
        **HIDDEN,
        meaning="Share of the causal blocks computed in prefills of the evaluated windows, else of the timed prompts.",
    ),
    Column(
        "prefill_mass",
        "mass %",
        scale=100,
        **HIDDEN,
        meaning="Share of the dense attention weights that lie on what prefills computed.",
    ),
    Column("kv_bytes_held", "cache MB", scale=1e-6, **HIDDEN, meaning="What the cache takes after the last pass."),
    Column("kv_peak_bytes", "cache peak MB", scale=1e-6, **HIDDEN, meaning="The most that the cache took in any pass."),
    Column(
        "tokens_read", "tokens read", digits=0, **HIDDEN, meaning="Tokens that attention reads per KV head and step."
    ),
    Column("kv_bytes_read", "disk MB/step", scale=1e-6, **HIDDEN, meaning="Bytes that a decode step reads from disk."),
    Column("kv_hit_share", "hit share", **HIDDEN, meaning="Share of the needed KV blocks that are in memory."),
    Column("streamed_bytes", "read MB/step", digits=1, scale=1e-6, **HIDDEN, meaning="From the disk per decode step."),
    _text("impls", "kernels", on_page=False, meaning="What ran."),
    Column("context", "context", digits=0, **HIDDEN),
    _text("protocol", "protocol", **HIDDEN),
    _text("machine", "machine", **HIDDEN),
    _text("cpu", "processor", **HIDDEN),
    _text("commit", "commit", **HIDDEN),
    _text("time", "time", **HIDDEN),
    _text(
        "pareto",
        "Pareto",
        meaning="No other row measured in the same way has better quality for as few bytes (size), at as high a speed "
        "(speed), or in as little memory (memory).",
    ),
)


def _shown(*places: str) -> dict[str, tuple[str, ...]]:
    """Column of each axis that is shown there if rows differ in it -> figures that are shown with it."""
    headings = [(axis.name, axis.heading) for axis in AXES if axis.heading is not None and axis.heading.shown in places]
    return {heading.column or name: heading.figures for name, heading in headings}


IF_ROWS_DIFFER = _shown(IN_TABLES)
# The Markdown has separate tables for rows that differ in other axes.
IF_ROWS_DIFFER_ON_PAGE = _shown(IN_TABLES, ON_PAGE) | {
    "memory_limit_bytes": ("streamed_bytes",),
    "protocol": (),
    "machine": (),
}

LAUNCHED = tuple(
    column
    for phase in PHASES
    for column in (
        Column(LAUNCHES.format(phase), f"{phase} launches", digits=0, **HIDDEN),
        Column(
            SPREAD.format(phase),
            f"{phase} spread %",
            digits=1,
            scale=100,
            **HIDDEN,
            meaning="Standard deviation between processes that measured the same speed, pooled over the rows of one "
            "work (`--launches`). A row of 5 processes or more that differ more has its own.",
        ),
        Column(FREEDOM.format(phase), f"{phase} freedom", digits=0, **HIDDEN),
    )
)


def all_columns(columns: Mapping[str, Iterable[Any]]) -> list[Column]:
    """COLUMNS, speeds with their ends if `with_launches` gave them; before these, the columns of `with_extra`."""
    extra = [column for column in LAUNCHED if column.key in columns]
    extra += [_extra(columns, key) for key in columns if key.startswith((TASK, PROTOCOL)) and not key.endswith(ENDS)]
    place = [column.key for column in COLUMNS].index("pp_tok_s")
    known = [_with_launches(column, columns) for column in COLUMNS]
    return [*known[:place], *extra, *known[place:]]


def _with_launches(column: Column, columns: Mapping[str, Iterable[Any]]) -> Column:
    phase = column.key.removesuffix("_tok_s")
    if phase not in PHASES or LOW.format(phase) not in columns:
        return column
    return replace(column, ends=(LOW.format(phase), HIGH.format(phase)), ends_name=INTERVAL)


def _extra(columns: Mapping[str, Iterable[Any]], key: str) -> Column:
    low, high = (key + end for end in ENDS)
    ends = (low, high) if low in columns else None
    if key.startswith(PROTOCOL):
        heading = f"perplexity {key.removeprefix(PROTOCOL)}"
        return Column(key, heading, digits=3, ends=ends, ends_name=INTERVAL, **HIDDEN)
    name = key.removeprefix(TASK)
    metric = metric_of(columns["tasks"], name)
    if metric is None:  # of another table's rows
        return Column(key, name)
    meaning = f"lm-eval's task {name}: {metric}, under the protocol told in the row's passport."
    if metric in SHARES:
        return Column(key, f"{name} {metric} %", scale=100, ends=ends, ends_name=INTERVAL, meaning=meaning)
    return Column(key, f"{name} {metric}", digits=4, ends=ends, ends_name=INTERVAL, meaning=meaning)


def pick_columns(columns: Sequence[Column], names: Sequence[str]) -> list[Column]:
    """Those of these keys, in the order of the keys. raises InputError for one that is not known"""
    by_key = {column.key: column for column in columns}
    for name in names:
        if name not in by_key:
            raise InputError(f"unknown column {name!r}; known: {', '.join(by_key)}")
    return [by_key[name] for name in names]


def columns_of(table: Table, names: Sequence[str] | None = None) -> list[Column]:
    """The columns of this table: those named, or else the usual ones that have anything to show."""
    columns = all_columns(table.columns)
    usual = {column.key for column in columns if column.in_markdown}
    if len(set(table.columns["recipe"])) < len(table.columns["recipe"]):
        usual.add("kv_format")  # else the recipe names it
    for name, figures in IF_ROWS_DIFFER.items():
        if name != "kv_format" and len(set(table.columns[name])) > 1:
            usual |= {name, *figures}
    if not all(map(is_missing, table.columns["division"])):
        usual |= {"division"}
    if not all(map(is_missing, table.columns["memory_limit_bytes"])):
        usual |= {"memory_limit_bytes", "streamed_bytes"}
    if not all(map(is_missing, table.columns["kv_ram"])):
        usual |= {"kv_ram", "kv_bytes_read", "kv_hit_share"}
    picked = pick_columns(columns, names) if names else [column for column in columns if column.key in usual]
    shown = [column for column in picked if names or not all(map(is_missing, table.columns[column.key]))]
    headings = [_heading(column, table) for column in shown]
    return [
        column if heading == column.heading else replace(column, heading=heading)
        for column, heading in zip(shown, headings, strict=True)
    ]


def _heading(column: Column, table: Table) -> str:
    """A speed is shown with its number of tokens: "pp512 tok/s", at a depth "tg64@4096 tok/s"."""
    phase = column.key.removesuffix("_tok_s")
    if phase not in ("pp", "tg") or is_missing(table.first(phase)):
        return column.heading
    depth = table.first("depth")
    at = f"@{depth:.0f}" if depth and not is_missing(depth) else ""
    return f"{phase}{table.first(phase):.0f}{at} tok/s"
