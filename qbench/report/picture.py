"""Quality against bytes as an SVG picture, in a light and a dark version."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quant.atomic import atomic_file
from quant.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]  # of a table
WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 72, 24, 56, 52  # margins of the plot
LETTER = 6.6  # width of a letter of a label
GAP = 8  # from a point to its label
LINE = 14  # from a label to the one below
COLOURS = {
    "light": {"text": "#24292f", "grid": "#d8dee4", "point": "#3f51b5", "front": "#c2185b"},
    "dark": {"text": "#e6edf3", "grid": "#30363d", "point": "#9fa8da", "front": "#f48fb1"},
}


@dataclass(frozen=True, slots=True)
class Dot:
    """One row of a table. x: its bits or bytes; interval: of `kld`, 95 %"""

    name: str
    x: float
    kld: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """KL divergence of `dots`, in order of `x`, against the quantity that `x_label` names."""

    title: str
    x_label: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A kind of picture. column: `x`; name: the column that names the dots; the dots share the others of `ALIKE`"""

    column: str
    name: str
    x_label: str
    unit: float = 1.0


SIZE = Question("bits_per_weight", "recipe", "bits per weight")
QUESTIONS = (
    SIZE,
    Question("kv_bytes_per_token", "kv_format", "KV cache, bytes per token"),
    Question("kv_bytes_held", "policy", "KV cache held, MB", 1e6),
)
ALIKE = ("model", "cpu", "recipe", "kv_format", "policy", "cache", "prefill_chunk", "attention", "depth", "protocol")
MIN_DOTS = 4  # fewer can be read from the table
MAX_PICTURES = 4  # of one table; more of them show nothing at a glance


def write_pictures(frame: "pd.DataFrame", path: Path) -> list[Path]:
    """Write NAME-light.svg and NAME-dark.svg of quality against size for a path NAME.svg.

    raises   InputError for records without KLD, or of several models
    """
    rows = _rows(frame, SIZE)
    models = sorted({str(row["model"]) for row in rows})
    if len(models) != 1:
        raise InputError(f"a picture shows the KLD of one model, got {', '.join(models) or 'no row with KLD'}")
    picture = _picture(rows, SIZE, [models[0]])
    written = []
    for theme in COLOURS:
        target = path.with_name(f"{path.stem}-{theme}.svg")
        with atomic_file(target) as temporary:
            temporary.write_text(draw(picture, theme), encoding="utf-8")
        written.append(target)
    return written


def pictures_of(frame: "pd.DataFrame") -> list[Picture]:
    """The pictures that show a table at a glance: rows that differ in recipe, in KV format or in policy alone."""
    pictures = [picture for question in QUESTIONS for picture in _of_question(frame, question)]
    return pictures if len(pictures) <= MAX_PICTURES else []


def _of_question(frame: "pd.DataFrame", question: Question) -> list[Picture]:
    rows = _rows(frame, question)
    alike = [name for name in ALIKE if name != question.name and name in frame]
    varied = [name for name in alike if name != "cpu" and len({str(row[name]) for row in rows}) > 1]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row[name]) for name in alike), []).append(row)
    return [
        _picture(group, question, [str(group[0][name]) for name in dict.fromkeys(["model", *varied])])
        for group in groups.values()
        if len({row[question.name] for row in group}) >= MIN_DOTS and len({row[question.column] for row in group}) > 1
    ]


def _rows(frame: "pd.DataFrame", question: Question) -> list[Row]:
    """The rows that have both quantities of the picture."""
    if question.column not in frame or "kld_mean" not in frame:
        return []
    rows = [dict(zip(map(str, frame.columns), values, strict=True)) for values in frame.itertuples(index=False)]
    return [row for row in rows if _number(row[question.column]) is not None and _number(row["kld_mean"]) is not None]


def _picture(rows: Sequence[Row], question: Question, common: Sequence[str]) -> Picture:
    dots = [
        Dot(str(row[question.name]), row[question.column] / question.unit, row["kld_mean"], _interval(row))
        for row in rows
    ]
    title = f"{', '.join(common)} on {rows[0]['cpu']}"
    return Picture(title, question.x_label, tuple(sorted(dots, key=lambda dot: dot.x)))


def _interval(row: Row) -> tuple[float, float] | None:
    low, high = _number(row["kld_low"]), _number(row["kld_high"])
    return None if low is None or high is None else (low, high)


def _number(value: float | None) -> float | None:
    """None for a missing value, and for one that a logarithm cannot take."""
    return None if value is None or value != value or value <= 0 else float(value)


def front(dots: Sequence[Dot]) -> set[str]:
    """Names of the dots that no other one beats in both bytes and KLD."""
    return {
        one.name
        for one in dots
        if not any(
            other.x <= one.x and other.kld <= one.kld and (other.x, other.kld) != (one.x, one.kld) for other in dots
        )
    }


@dataclass(frozen=True, slots=True)
class Axes:
    """Linear in x, logarithmic in KLD; both ends are whole ticks."""

    ticks: tuple[float, ...]
    powers: tuple[int, int]

    @classmethod
    def of(cls, dots: Sequence[Dot]) -> "Axes":
        klds = [value for dot in dots for value in (dot.kld, *(dot.interval or ()))]
        low, high = math.floor(math.log10(min(klds))), math.ceil(math.log10(max(klds)))
        return cls(_ticks(min(dot.x for dot in dots), max(dot.x for dot in dots)), (low, max(high, low + 1)))

    def x(self, value: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, kld: float) -> float:
        low, high = self.powers
        return HEIGHT - BOTTOM - (math.log10(kld) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def _ticks(first: float, last: float) -> tuple[float, ...]:
    """Multiples of 1, 2 or 5 times a power of ten, at most 10, with room on both sides of the dots."""
    width = max(last - first, abs(first) * 0.1, 1e-9)
    step = next(
        step
        for power in range(math.floor(math.log10(width / 10)), math.ceil(math.log10(width)) + 1)
        for step in (10.0**power, 2 * 10.0**power, 5 * 10.0**power)
        if width / step <= 7
    )
    low, high = math.floor(first / step - 0.2), math.ceil(last / step + 0.2)
    low = max(low, 0) if first >= 0 else low
    return tuple(index * step for index in range(low, high + 1))


def draw(picture: Picture, theme: str) -> str:
    """The SVG document of one theme."""
    dots, colours = picture.dots, COLOURS[theme]
    axes, best, title = Axes.of(dots), front(dots), escape(picture.title)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12" fill="{colours["text"]}" role="img">',
        f"<title>{title}: KL divergence against {picture.x_label}</title>",
        f'<text x="{LEFT}" y="20" font-size="15">{title}</text>',
        f'<text x="{LEFT}" y="40">Lower left is better. Whiskers: 95 % interval. '
        f'<tspan fill="{colours["front"]}">Red</tspan>: no other point is both smaller and closer.</text>',
        *_grid(axes, picture.x_label, colours),
        *(line for dot in dots for line in _dot(dot, axes, colours["front" if dot.name in best else "point"])),
        *_labels(dots, axes, best),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _grid(axes: Axes, x_label: str, colours: dict[str, str]) -> list[str]:
    """Lines, tick labels and axis titles."""
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    lines = []
    for tick in axes.ticks:
        x = axes.x(tick)
        lines.append(f'<path d="M{x:.1f} {TOP}V{bottom}" stroke="{colours["grid"]}"/>')
        lines.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{tick:.10g}</text>')
    for power in range(axes.powers[0], axes.powers[1] + 1):
        y = axes.y(10.0**power)
        lines.append(f'<path d="M{LEFT} {y:.1f}H{right}" stroke="{colours["grid"]}"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">1e{power}</text>')
    middle = (TOP + bottom) / 2
    lines.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{x_label}</text>')
    lines.append(
        f'<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})">mean KLD, nats</text>'
    )
    return lines


def _dot(dot: Dot, axes: Axes, colour: str) -> list[str]:
    """A circle with its whisker. Its name is shown under the pointer too, for a dot without a label."""
    x, y = axes.x(dot.x), axes.y(dot.kld)
    whisker = []
    if dot.interval:
        low, high = map(axes.y, dot.interval)
        whisker = [f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{colour}"/>']
    name = f"<title>{escape(dot.name)}</title>"
    return [*whisker, f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}">{name}</circle>']


def _labels(dots: Sequence[Dot], axes: Axes, best: set[str]) -> list[str]:
    """Labels, as far as there is room. Those of the front come first, and may use the lines above and below."""
    taken, lines = [_mark(dot, axes) for dot in dots], []
    for dot in sorted(dots, key=lambda dot: dot.name not in best):
        x, width = axes.x(dot.x), len(dot.name) * LETTER
        for line in (0, LINE, -LINE) if dot.name in best else (0,):
            y = axes.y(dot.kld) + line
            right, left = (x + GAP, y - 7, x + GAP + width, y + 7), (x - GAP - width, y - 7, x - GAP, y + 7)
            box = next((box for box in (right, left) if _is_free(box, taken)), None)
            if box is not None:
                taken.append(box)
                place = f'x="{x + GAP:.1f}"' if box is right else f'x="{x - GAP:.1f}" text-anchor="end"'
                lines.append(f'<text {place} y="{y + 4:.1f}">{escape(dot.name)}</text>')
                break
    return lines


def _is_free(box: "Box", taken: Sequence["Box"]) -> bool:
    return box[0] > LEFT and box[2] < WIDTH and not any(_overlap(box, other) for other in taken)


Box = tuple[float, float, float, float]


def _mark(dot: Dot, axes: Axes) -> Box:
    """The place of a dot with its whisker."""
    x, (low, high) = axes.x(dot.x), dot.interval or (dot.kld, dot.kld)
    return (x - 5, min(axes.y(high), axes.y(dot.kld) - 5), x + 5, max(axes.y(low), axes.y(dot.kld) + 5))


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
