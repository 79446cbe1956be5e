"""One self-contained HTML page: table, scatters, a passport of every row; no network, light and dark, any width."""

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from pathlib import PurePath
from string import Template
from typing import TYPE_CHECKING, Any, cast

from qbench.report.columnar import EXACT_ROWS, pack
from qbench.report.columns import IF_ROWS_DIFFER_ON_PAGE, Column, all_columns
from qbench.report.extra_columns import with_extra
from qbench.report.family import recipe_family

if TYPE_CHECKING:
    import pandas as pd

# In this order: each uses those before it.
SCRIPTS = (
    *("data", "dom", "format", "links", "view", "fronts", "groups", "labels"),
    *("ticks", "plot", "scatter", "policies"),
    *("table", "board", "tray"),
    *("statistics", "strips", "reproduce", "panels", "passport", "comparison", "compare", "app"),
)

SPECS = ("ref:", "rand:", "shape:", "hf:")  # models that are no paths

LEAD = "Quality is the divergence from the unquantized model's predictions; lower is better."

BESIDE_COLUMNS = (
    *("group", "is_baseline", "status", "error", "key"),
    *("threads", "batch", "pp", "tg", "depth", "protocol_hash"),
)

# Mail and chat take a page of this size, and a phone opens it. It holds records as far as there is room.
# The table has the larger part.
PAGE_BYTES, TABLE_BYTES = 5_900_000, 3_600_000
FLUSH_BYTES = 1 << 17  # deflate keeps a block to itself, at most 32 Ki symbols of at most 4 bytes
KEY_DIGITS = 8


def render_page(frame: "pd.DataFrame", records: Iterable[tuple[int, bytes]] = ()) -> str:
    """The whole page as text.

    frame     of `load_records`
    records   (row of the frame, its record as one line of JSON), those to be kept first coming first
    """
    digits = _key_digits(cast("pd.Series", frame["key"]))
    frame = with_extra(frame)
    columns = all_columns({str(name): values for name, values in frame.items()})
    packed, left_out = pack(page_table(frame, columns, digits), TABLE_BYTES * 3 // 4)  # base64 makes 4 bytes of 3
    table = base64.b64encode(packed).decode()
    parts = files("qbench.report").joinpath("assets")
    scripts = "\n".join(parts.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    css = parts.joinpath("page.css").read_text(encoding="utf-8")
    room = PAGE_BYTES - len(table) - len(scripts) - len(css)
    rows, lines = _that_fit(records, room * 3 // 4)
    about = {
        "title": _title(frame),
        "lead": _lead(frame),
        "columns": [asdict(column) for column in columns],
        "if_rows_differ": IF_ROWS_DIFFER_ON_PAGE,
        "records": len(rows),
        "rows_of_records": rows,
        "key_digits": digits,
        "left_out": [column.heading for column in columns if column.key in left_out],
    }
    glossary = [(column.heading, column.meaning) for column in columns if column.meaning]
    return Template(parts.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=escape(_title(frame)),
        css=css,
        about=_script_json(about),
        table=table,
        records=lines,
        glossary="\n".join(f"<dt>{escape(word)}</dt><dd>{escape(told)}</dd>" for word, told in glossary),
        origin="Made by <code>qbench report</code>.",
        js=scripts,
    )


def page_table(frame: "pd.DataFrame", columns: Sequence[Column], key_digits: int) -> "pd.DataFrame":
    """The columns that the page shows, sorts and filters by, the least wanted last; keys to their first digits."""
    time = frame["time"] if len(frame) <= EXACT_ROWS else frame["time"].str[:10]  # of many, the day is enough
    table = frame.assign(
        family=frame["recipe"].map(recipe_family),
        commit=_commits(frame),
        key=frame["key"].str[:key_digits],
        time=time,
    )
    # The page finds the fronts itself.
    shown = [name for name in dict.fromkeys(_in_order(columns)) if name != "pareto"]
    return cast("pd.DataFrame", table[shown])


def _in_order(columns: Sequence[Column]) -> Iterator[str]:
    """Columns of the packed table: keys of the page, texts, values shown at once, their ends, the rest."""
    yield from BESIDE_COLUMNS
    yield from (column.key for column in columns if not column.numeric)
    at_once = [column for column in columns if column.on_page]
    yield from (column.key for column in at_once)
    yield from (end for column in at_once for end in column.ends or ())
    rest = sorted(columns, key=lambda column: not column.in_markdown)
    yield from (key for column in rest for key in (column.key, *(column.ends or ())))


def _commits(frame: "pd.DataFrame") -> "pd.Series":
    """A tree with changes is not the commit that it began from."""
    commits, dirty = (cast("pd.Series", frame[name]) for name in ("commit", "dirty"))
    return commits.where(~dirty.fillna(False).astype(bool), commits.astype(str) + "+changes")


def _key_digits(keys: "pd.Series") -> int:
    """As many digits as distinguish the rows' keys: hashes hardly compress."""
    distinct = keys.drop_duplicates()
    digits = KEY_DIGITS
    while not distinct.str[:digits].is_unique:
        digits += 1
    return digits


def _that_fit(records: Iterable[tuple[int, bytes]], room: int) -> tuple[list[int], str]:
    """As many of the first lines as deflate into `room` bytes: their rows, and the stream in base64."""
    stream, rows, packed = zlib.compressobj(9), [], bytearray()
    for row, line in records:
        # The stream holds back a block at most; a line that may not fit is not begun.
        if len(packed) + FLUSH_BYTES + len(line) > room:
            break
        packed += stream.compress(line if not rows else b"\n" + line)
        rows.append(row)
    return rows, base64.b64encode(packed + stream.flush()).decode()


def _title(frame: "pd.DataFrame") -> str:
    models = [_short(name) for name in frame["model"].unique().tolist()]
    if not models:
        return "No measurements yet"
    return f"What quantization costs {' and '.join(models)}" if len(models) <= 2 else "What quantization costs"


def _short(model: str) -> str:
    """The name of a model; the last part of a path."""
    return model if model.startswith(SPECS) else PurePath(model).name or model


def _lead(frame: "pd.DataFrame") -> str:
    numbers = [
        (len(frame), "measurement"),
        (frame["model"].nunique(), "model"),
        (frame["recipe"].nunique(), "recipe"),
        (frame["machine"].nunique(), "machine"),
    ]
    rows, models, recipes, machines = (f"{number:,} {thing}{'' if number == 1 else 's'}" for number, thing in numbers)
    return f"{rows} of {models} in {recipes}, on {machines}. {LEAD}"


def _script_json(value: Any) -> str:
    """JSON that cannot end the script element that holds it."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")
