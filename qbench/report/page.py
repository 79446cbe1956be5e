"""One self-contained HTML page: two scatters and the table, no network, light and dark, wide and narrow."""

import json
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from qbench.report.columns import MISSING, Column, columns_of, is_missing, scientific
from qbench.report.table import Table, quality_column

EN_DASH = "\u2009\u2013\u2009"  # between thin spaces

LEAD = (
    "Each recipe was written to disk, loaded again, and measured on this machine. "
    "Quality is the divergence from the unquantized model's predictions; lower is better."
)

GLOSSARY = {
    "bits/weight": "All stored bits, scales included, over all weights, embedding and head included.",
    "perplexity": "Under the protocol named with the table; the interval is a 95 % bootstrap over windows of text.",
    "KLD": "Kullback-Leibler divergence of the next-token distribution from the unquantized model's, in nats: "
    "mean over tokens with its 95 % interval, and the 99th percentile.",
    "same top": "Share of tokens where both models rank the same next token first.",
    "pp, tg": "Tokens a second reading a prompt of N tokens (pp) and writing N tokens one by one (tg), after @ at that "
    "depth: the median of the repetitions, and their range.",
    "roofline": "Share of what this machine could do at most: operations over the peak for pp, bytes that must move "
    "over the bandwidth for tg, both measured in the same run. Above 100 % the weights stay in a processor cache.",
    "peak RSS": "The most memory that the measuring process held, Python and libraries included.",
    "Pareto": "No other row has better quality for as few bytes (size), or better quality at as high a speed (speed).",
}


def render_page(tables: list[Table]) -> str:
    """The whole page as text; `tables` from `build_tables`."""
    from plotly.offline import get_plotlyjs

    models = sorted({table.frame.iloc[0]["model"] for table in tables})
    parts = files("qbench.report")
    return Template(parts.joinpath("page.html").read_text()).substitute(
        title=escape(f"What quantization costs {', '.join(models)}" if models else "No measurements yet"),
        lead=LEAD,
        css=parts.joinpath("page.css").read_text(),
        sections="\n".join(_section(table) for table in tables),
        glossary="\n".join(f"<dt>{escape(word)}</dt><dd>{escape(told)}</dd>" for word, told in GLOSSARY.items()),
        points=_script_json({"tables": [_points(table) for table in tables]}),
        plotly=get_plotlyjs(),
        labels=parts.joinpath("labels.js").read_text(),
        js=parts.joinpath("page.js").read_text(),
    )


def _script_json(value: Any) -> str:
    """JSON that cannot end the script element that holds it."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def _points(table: Table) -> dict[str, Any]:
    """What the scatters draw: a point a row, and which scatters there are."""
    quality = quality_column(table.frame)
    points = [_point(row, quality) for row in table.frame.to_dict("records")]
    decode = f"decode, tokens a second (tg{table.frame.iloc[0]['tg']:.0f})" if points[0]["has_tg"] else ""
    plots = [{"front": "size", "title": "size of the weights, MB"}, {"front": "speed", "title": decode}]
    return {
        "id": f"t{table.group}",
        "quality_title": "mean KLD from the unquantized model, nats" if quality == "kld_mean" else "perplexity",
        "log_quality": quality == "kld_mean",
        "points": points,
        "plots": [plot for plot in plots if any(point["x"][plot["front"]] is not None for point in points)],
    }


def _point(row: dict[str, Any], quality: str) -> dict[str, Any]:
    name = quality.removesuffix("_mean")
    megabytes = None if is_missing(row["size_bytes"]) else row["size_bytes"] / 1e6
    return {
        "recipe": row["recipe"],
        "baseline": bool(row["is_baseline"]),
        "quality": _number(row[quality]),
        "quality_range": _range(row[f"{name}_low"], row[f"{name}_high"]),
        "x": {"size": megabytes, "speed": _number(row["tg_tok_s"])},
        "x_range": {"size": None, "speed": _range(row["tg_min"], row["tg_max"])},
        "front": {plane: plane in row["pareto"].split() for plane in ("size", "speed")},
        "has_tg": not is_missing(row["tg"]),
        "hover": _hover(row),
    }


def _hover(row: dict[str, Any]) -> str:
    lines = [f"<b>{escape(row['recipe'])}</b>"]
    for key, text in (
        ("bits_per_weight", lambda value: f"{value:.2f} bits/weight"),
        ("kld_mean", lambda value: f"mean KLD {scientific(value)}"),
        ("perplexity", lambda value: f"perplexity {value:.3f}"),
        ("same_top", lambda value: f"same top {100 * value:.2f} %"),
        ("tg_tok_s", lambda value: f"{value:.0f} tok/s decode"),
    ):
        if not is_missing(row[key]):
            lines.append(text(row[key]))
    return "<br>".join(lines)


def _number(value: Any) -> float | None:
    return None if is_missing(value) else float(value)


def _range(low: Any, high: Any) -> list[float] | None:
    return None if is_missing(low) or is_missing(high) else [float(low), float(high)]


def _section(table: Table) -> str:
    points = _points(table)
    captions = {
        "size": "Quality against size<span>better is down and to the left</span>",
        "speed": "Quality against speed<span>better is down and to the right</span>",
    }
    figures = "".join(
        f"<figure><figcaption>{captions[plot['front']]}</figcaption>"
        f'<div class="plot" id="{points["id"]}-{plot["front"]}"></div></figure>'
        for plot in points["plots"]
    )
    failures = "".join(f"<li><b>{escape(recipe)}</b> failed: {escape(error)}</li>" for recipe, error in table.failures)
    return (
        f'<section><h2>{escape(table.title)}</h2><p class="note">{escape(table.note)}</p>'
        '<ul class="key"><li><i class="dot"></i>on the Pareto front</li>'
        '<li><i class="dot beaten"></i>beaten by another</li><li><i class="dot baseline"></i>unquantized</li></ul>'
        f'<div class="plots">{figures}</div>{_table(table)}'
        + (f'<ul class="failures">{failures}</ul>' if failures else "")
        + "</section>"
    )


def _table(table: Table) -> str:
    columns = columns_of(table)
    head = "".join(
        f'<th{"" if column.numeric else " class=text"} scope="col"><button>{_heading(column.heading)}</button></th>'
        for column in columns
    )
    body = "".join(_row(columns, row) for row in table.frame.to_dict("records"))
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _heading(heading: str) -> str:
    """ "perplexity [95 %]" -> the word, and what stands below it in small."""
    word, _, small = heading.partition(" [")
    below = f"<small>{escape(small.rstrip(']'))}</small>" if small else ""
    return f'<span class="head">{escape(word)}</span>{below}'


def _row(columns: list[Column], row: dict[str, Any]) -> str:
    kind = "baseline" if row["is_baseline"] else "failed" if row["status"] != "ok" else ""
    return f'<tr class="{kind}">' + "".join(_cell(column, row) for column in columns) + "</tr>"


def _cell(column: Column, row: dict[str, Any]) -> str:
    text = column.cell(row)
    sort = "" if text == MISSING else escape(str(row[column.key]))
    if column.key == "recipe":
        return f'<th class="text" scope="row" data-sort="{sort}">{escape(text)}</th>'
    classes = " ".join(name for name, on in (("text", not column.numeric), ("missing", text == MISSING)) if on)
    return f'<td class="{classes}" data-sort="{sort}">{_content(column, text)}</td>'


def _content(column: Column, text: str) -> str:
    if column.key == "pareto":
        return "".join(f'<span class="badge">{mark}</span>' for mark in text.split())
    if column.key == "impls":
        return "".join(f'<span class="impl">{escape(name)}</span>' for name in text.split(", "))
    value, _, interval = text.partition(" [")
    return escape(value) + (f"<small>{escape(interval.rstrip(']').replace(', ', EN_DASH))}</small>" if interval else "")
