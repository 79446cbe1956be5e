"""Quality against size as an SVG picture, in a light and a dark version."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from quant.atomic import atomic_file
from quant.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 72, 24, 56, 52  # margins of the plot
LETTER = 6.6  # width of a letter of a label
GAP = 8  # from a point to its label
COLOURS = {
    "light": {"text": "#24292f", "grid": "#d8dee4", "point": "#3f51b5", "front": "#c2185b"},
    "dark": {"text": "#e6edf3", "grid": "#30363d", "point": "#9fa8da", "front": "#f48fb1"},
}


@dataclass(frozen=True, slots=True)
class Dot:
    """One recipe. low, high: the 95 % interval of `kld`"""

    name: str
    bits: float
    kld: float
    low: float | None = None
    high: float | None = None


def write_pictures(frame: "pd.DataFrame", path: Path) -> list[Path]:
    """Write NAME-light.svg and NAME-dark.svg for a path NAME.svg.

    raises   InputError for records without KLD, or of several models
    """
    dots, title = dots_of(frame), f"{frame['model'].iloc[0]} on {frame['cpu'].iloc[0]}"
    written = []
    for theme in COLOURS:
        target = path.with_name(f"{path.stem}-{theme}.svg")
        with atomic_file(target) as temporary:
            temporary.write_text(draw(dots, title, theme), encoding="utf-8")
        written.append(target)
    return written


def dots_of(frame: "pd.DataFrame") -> list[Dot]:
    """The rows that have bits per weight and KLD, by size. raises InputError as `write_pictures`"""
    kept = frame[frame["bits_per_weight"].notna() & (frame["kld_mean"] > 0)]
    rows = [dict(zip(kept.columns, values, strict=True)) for values in kept.itertuples(index=False)]
    models = sorted({row["model"] for row in rows})
    if len(models) != 1:
        raise InputError(f"a picture shows the KLD of one model, got {', '.join(models) or 'no row with KLD'}")
    dots = [
        Dot(row["recipe"], row["bits_per_weight"], row["kld_mean"], _number(row["kld_low"]), _number(row["kld_high"]))
        for row in rows
    ]
    return sorted(dots, key=lambda dot: dot.bits)


def _number(value: float) -> float | None:
    return None if value != value or value <= 0 else float(value)


def front(dots: Sequence[Dot]) -> set[str]:
    """Names of the dots that no other one beats in both size and KLD."""
    return {
        one.name
        for one in dots
        if not any(
            other.bits <= one.bits and other.kld <= one.kld and (other.bits, other.kld) != (one.bits, one.kld)
            for other in dots
        )
    }


@dataclass(frozen=True, slots=True)
class Axes:
    """Linear in bits, logarithmic in KLD; both ends are whole ticks."""

    bits: tuple[int, int]
    powers: tuple[int, int]

    @classmethod
    def of(cls, dots: Sequence[Dot]) -> "Axes":
        klds = [value for dot in dots for value in (dot.kld, dot.low, dot.high) if value]
        first, last = min(dot.bits for dot in dots), max(dot.bits for dot in dots)
        low, high = math.floor(math.log10(min(klds))), math.ceil(math.log10(max(klds)))
        return cls((math.floor(first) - 1, math.ceil(last) + 1), (low, max(high, low + 1)))

    def x(self, bits: float) -> float:
        low, high = self.bits
        return LEFT + (bits - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, kld: float) -> float:
        low, high = self.powers
        return HEIGHT - BOTTOM - (math.log10(kld) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def draw(dots: Sequence[Dot], title: str, theme: str) -> str:
    """The SVG document of one theme."""
    axes, colours, best = Axes.of(dots), COLOURS[theme], front(dots)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12" fill="{colours["text"]}" role="img">',
        f"<title>{escape(title)}: KL divergence against bits per weight</title>",
        f'<text x="{LEFT}" y="20" font-size="15">{escape(title)}</text>',
        f'<text x="{LEFT}" y="40">Lower left is better. Whiskers: 95 % interval. '
        f'<tspan fill="{colours["front"]}">Red</tspan>: no recipe is both smaller and closer.</text>',
        *_grid(axes, colours),
        *(line for dot in dots for line in _dot(dot, axes, colours["front" if dot.name in best else "point"])),
        *_labels(dots, axes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _grid(axes: Axes, colours: dict[str, str]) -> list[str]:
    """Lines, tick labels and axis titles."""
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    lines = []
    for bits in range(axes.bits[0], axes.bits[1] + 1, 2 if axes.bits[1] - axes.bits[0] > 8 else 1):
        x = axes.x(bits)
        lines.append(f'<path d="M{x:.1f} {TOP}V{bottom}" stroke="{colours["grid"]}"/>')
        lines.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{bits}</text>')
    for power in range(axes.powers[0], axes.powers[1] + 1):
        y = axes.y(10.0**power)
        lines.append(f'<path d="M{LEFT} {y:.1f}H{right}" stroke="{colours["grid"]}"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">1e{power}</text>')
    middle = (TOP + bottom) / 2
    lines.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 12}" text-anchor="middle">bits per weight</text>')
    lines.append(
        f'<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})">mean KLD, nats</text>'
    )
    return lines


def _dot(dot: Dot, axes: Axes, colour: str) -> list[str]:
    x, y = axes.x(dot.bits), axes.y(dot.kld)
    whisker = []
    if dot.low and dot.high:
        whisker = [f'<path d="M{x:.1f} {axes.y(dot.low):.1f}V{axes.y(dot.high):.1f}" stroke="{colour}"/>']
    return [*whisker, f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>']


def _labels(dots: Sequence[Dot], axes: Axes) -> list[str]:
    """A label next to each dot: to the right, or to the left if another dot or label is in the way."""
    taken = [_mark(dot, axes) for dot in dots]
    lines = []
    for dot in dots:
        x, y, width = axes.x(dot.bits), axes.y(dot.kld), len(dot.name) * LETTER
        right = (x + GAP, y - 7, x + GAP + width, y + 7)
        left = (x - GAP - width, y - 7, x - GAP, y + 7)
        is_free = right[2] < WIDTH and not any(_overlap(right, other) for other in taken)
        taken.append(right if is_free else left)
        place = f'x="{x + GAP:.1f}"' if is_free else f'x="{x - GAP:.1f}" text-anchor="end"'
        lines.append(f'<text {place} y="{y + 4:.1f}">{escape(dot.name)}</text>')
    return lines


Box = tuple[float, float, float, float]


def _mark(dot: Dot, axes: Axes) -> Box:
    """The place of a dot with its whisker."""
    x, high, low = axes.x(dot.bits), dot.high or dot.kld, dot.low or dot.kld
    return (x - 5, min(axes.y(high), axes.y(dot.kld) - 5), x + 5, max(axes.y(low), axes.y(dot.kld) + 5))


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
